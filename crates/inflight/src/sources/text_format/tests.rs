use proptest::prelude::*;

use super::*;

/// Reads a page in chunks of `size` and returns its samples as `name{label=value} number`.
fn read_in(page: &[u8], end: End, size: usize) -> Result<Vec<String>, TextError> {
    let mut samples = Vec::new();
    let mut take = |sample: &Sample<'_>| {
        let labels: Vec<_> = sample
            .labels()
            .map(|label| format!("{}={}", label.name, label.value.text()))
            .collect();
        samples.push(format!(
            "{}{{{}}} {}",
            sample.name,
            labels.join(","),
            sample.value
        ));
    };
    let mut reader = TextReader::new();
    for chunk in page.chunks(size.max(1)) {
        reader.feed(chunk, &mut take)?;
    }
    reader.finish(end, &mut take)?;
    Ok(samples)
}

fn read(page: &str, end: End) -> Result<Vec<String>, TextError> {
    let whole = read_in(page.as_bytes(), end, page.len());
    for size in [1, 2, 7] {
        assert_eq!(
            read_in(page.as_bytes(), end, size),
            whole,
            "in chunks of {size}"
        );
    }
    whole
}

#[track_caller]
fn one(line: &str) -> String {
    let samples = read(line, End::Delimited).unwrap();
    assert_eq!(samples.len(), 1, "{line}");
    samples.into_iter().next().unwrap()
}

#[track_caller]
fn fault(line: &str) -> Fault {
    match read(line, End::Delimited) {
        Err(TextError::Line { line: 1, fault }) => fault,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn b24_blanks_tabs_commas_and_line_ends_are_taken_as_they_come() {
    for (line, sample) in [
        ("suminfo 4424 ", "suminfo{} 4424"),
        ("suminfo 4424 \r\n", "suminfo{} 4424"),
        ("\tsuminfo\t4424\t\n", "suminfo{} 4424"),
        ("name{a=\"b\",} 1\n", "name{a=b} 1"),
        ("name{} 1\n", "name{} 1"),
        ("name{ } 1\n", "name{} 1"),
        ("name { a = \"b\" , c=\"d\" } 1\n", "name{a=b,c=d} 1"),
        ("name{a=\"b\"}1\n", "name{a=b} 1"),
        ("name 1", "name{} 1"),
        ("name 1 1395066363000\n", "name{} 1"),
        (
            "name 1 1395066363.25 # {trace_id=\"x\"} 0.67 1395066363\n",
            "name{} 1",
        ),
        ("name 1 # {} 0.67\n", "name{} 1"),
        (
            "ns:name:sum{le=\"+Inf\"} +Inf\n",
            "ns:name:sum{le=+Inf} inf",
        ),
        ("\n\n\r\n# TYPE name gauge\n#\nname 1\n\n", "name{} 1"),
        ("{\"a name\",b=\"c\"} 1\n", "a name{b=c} 1"),
        ("name{\"a label\"=\"c\"} 1\n", "name{a label=c} 1"),
    ] {
        assert_eq!(one(line), sample);
    }
    assert_eq!(read("", End::Delimited), Ok(Vec::new()));
}

#[test]
fn escapes_are_taken_back_and_unknown_ones_stay() {
    assert_eq!(
        one(r#"m{path="C:\\DIR\\",say="\"hi\"",two="a\nb",odd="\d",brace="}{,#"} 1"#),
        "m{path=C:\\DIR\\,say=\"hi\",two=a\nb,odd=\\d,brace=}{,#} 1"
    );
    assert_eq!(one("m{ü=\"1\"} 1".replace('ü', "u").as_str()), "m{u=1} 1");
    assert_eq!(one("m{u=\"ü→\"} 1"), "m{u=ü→} 1");
}

#[test]
fn b13_a_value_that_is_no_number_drops_the_page_and_nan_is_one() {
    assert_eq!(one("m NaN"), "m{} NaN");
    assert_eq!(one("m -Inf"), "m{} -inf");
    assert_eq!(one("m 1e400"), "m{} inf");
    assert_eq!(one("m -0"), "m{} -0");
    for line in ["m 0x1p3", "m ", "m", "m \"5\"", "m 1_0", "m{} ", "m 1,5"] {
        assert_eq!(fault(line), Fault::Value, "{line}");
    }
}

#[test]
fn what_is_no_sample_is_refused_and_says_why() {
    for (line, why) in [
        ("<html>", Fault::NoName),
        ("1m 5", Fault::NoName),
        ("{} 5", Fault::NoName),
        ("{\"\"} 5", Fault::Labels),
        ("m{a=b} 5", Fault::Labels),
        ("m{a=\"b} 5", Fault::Labels),
        ("m{a=\"b\\\"} 5", Fault::Labels),
        ("m{a=\"b\" c=\"d\"} 5", Fault::Labels),
        ("m{,} 5", Fault::Labels),
        ("m{a:b=\"c\"} 5", Fault::Labels),
        ("m{\"other\"} 5", Fault::Labels),
        ("m{a=\"b\",\"other\"} 5", Fault::Labels),
        ("m 5 x", Fault::Time),
        ("m 5 NaN", Fault::Time),
        ("m 5 6 7", Fault::Rest),
        ("m 5 # no", Fault::Exemplar),
        ("m 5 # {a=\"b\"}", Fault::Exemplar),
    ] {
        assert_eq!(fault(line), why, "{line}");
    }
    let bytes = b"ok 1\nm{a=\"\xff\"} 1\n";
    let error = read_in(bytes, End::Delimited, 3).unwrap_err();
    assert_eq!(error.to_string(), "line 2: not UTF-8");
}

#[test]
fn b22_a_page_that_is_cut_is_dropped_whole_and_the_next_is_taken() {
    let page = "# TYPE m counter\nm_total{a=\"b\"} 123\nn 45\n# EOF\n";
    let whole = ["m_total{a=b} 123", "n{} 45"].map(str::to_owned).to_vec();
    for cut in 0..page.len() {
        let read = read(&page[..cut], End::Marked);
        // Only the line feed after the mark may be missing.
        assert_eq!(
            read.is_ok(),
            cut + 1 == page.len(),
            "cut at {cut}: {read:?}"
        );
    }
    assert_eq!(read(page, End::Marked), Ok(whole.clone()));
    assert_eq!(read(page, End::Closed), Ok(whole));
    assert_eq!(read("m 12", End::Closed), Err(TextError::CutLine));
    assert_eq!(read("m 12\n", End::Closed), Ok(vec!["m{} 12".to_owned()]));
}

#[test]
fn nothing_but_blank_lines_follows_the_end_mark() {
    assert!(read("m 1\n# EOF\n\n", End::Marked).is_ok());
    for more in ["m 2\n", "# HELP m more\n", "# EOF\n", "<html>"] {
        let page = format!("m 1\n# EOF\n{more}");
        assert!(read(&page, End::Marked).is_err(), "{more}");
    }
}

#[test]
fn a_line_without_an_end_is_given_up_within_a_bound() {
    let long = format!("m{{a=\"{}\"}} 1\n", "x".repeat(LINE_BYTES_MAX));
    for size in [1000, long.len()] {
        let read = read_in(long.as_bytes(), End::Delimited, size);
        assert_eq!(read, Err(TextError::LongLine { line: 1 }));
    }
    let mut reader = TextReader::new();
    let endless = vec![b'#'; 1024];
    let fed = (0..1_000_000).find_map(|_| reader.feed(&endless, |_| {}).err());
    assert_eq!(fed, Some(TextError::LongLine { line: 1 }));
    assert!(reader.begun.capacity() <= 2 * LINE_BYTES_MAX);
}

#[test]
fn labels_are_found_by_name() {
    let mut found = None;
    let mut reader = TextReader::new();
    let take = |sample: &Sample<'_>| {
        found = sample.labels().value("le").map(|le| le == *"0.5");
    };
    reader
        .feed(b"h_bucket{a=\"1\",le=\"0.5\"} 7\n", take)
        .unwrap();
    assert_eq!(found, Some(true));
}

/// Lines and pieces of lines that are nearly right.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("m_total".to_owned()),
        Just("{a=\"b\"}".to_owned()),
        Just("{a=\"\\".to_owned()),
        Just("\"".to_owned()),
        Just(" 1.5e3".to_owned()),
        Just(" NaN".to_owned()),
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("# EOF".to_owned()),
        Just(" # {} 1".to_owned()),
        any::<String>(),
    ]
}

proptest! {
    #[test]
    fn any_bytes_in_any_chunks_read_the_same_and_never_panic(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            proptest::collection::vec(piece(), 0..20).prop_map(|all| all.concat().into_bytes()),
        ],
        size in 1_usize..50,
        end in prop_oneof![Just(End::Marked), Just(End::Delimited), Just(End::Closed)],
    ) {
        let whole = read_in(&bytes, end, bytes.len());
        prop_assert_eq!(read_in(&bytes, end, size), whole);
    }

    #[test]
    fn every_text_survives_as_a_label_and_every_number_as_a_value(
        text in any::<String>(),
        value in any::<f64>(),
    ) {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let page = format!("m{{a=\"{escaped}\"}} {value:?}\n# EOF\n");
        let expected = format!("m{{a={text}}} {value}");
        prop_assert_eq!(read_in(page.as_bytes(), End::Marked, page.len()), Ok(vec![expected]));
    }
}
