//! What is committed is what the generator makes of `proto/`.

use std::fs;
use std::path::Path;

const PROTOS: [&str; 3] = [
    "envoy_ext_authz.proto",
    "health.proto",
    "keda_external_scaler.proto",
];

#[test]
fn the_committed_code_is_what_the_generator_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    fs::create_dir_all(&out).unwrap();
    let files = protox::compile(PROTOS, [root.join("proto")]).unwrap();
    tonic_prost_build::configure()
        .out_dir(&out)
        // Whoever has a connection makes a client of it.
        .build_transport(false)
        .compile_fds(files)
        .unwrap();
    for entry in fs::read_dir(&out).unwrap() {
        let name = entry.unwrap().file_name();
        let made = fs::read_to_string(out.join(&name)).unwrap();
        // The generator silences a lint that its own types do not meet.
        let is_code = |line: &&str| !line.contains("(non_camel_case_types)");
        let made: String = made.split_inclusive('\n').filter(is_code).collect();
        let committed = root.join("src/generated").join(&name);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&committed, &made).unwrap();
        }
        let found = fs::read_to_string(&committed).unwrap_or_default();
        assert!(
            found == made,
            "{name:?} differs from its .proto: UPDATE=1 cargo test -p inflight-proto"
        );
    }
}
