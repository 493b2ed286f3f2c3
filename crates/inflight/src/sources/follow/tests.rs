use std::sync::atomic::{AtomicUsize, Ordering};

use inflight_core::load::{InstanceId, Standing};

use super::*;
use crate::clock::Clock;
use crate::fleet::{Peers, Published, Serving, Sources, sample};

/// A fleet of whose replicas others are told.
fn fleet() -> Arc<Fleet> {
    let sources = Sources {
        peers: Some(Peers::new(InstanceId(1), 1)),
        published: Some(Published::default()),
        ..Sources::default()
    };
    sample::fleet("f", Clock::start(), sources)
}

/// Fails in a way that no reader should.
struct Faulty;

impl Reader for Faulty {
    async fn read(&mut self, _: &mut Client, _: &Fleet, _: PeerId) -> Result<(), String> {
        panic!("a fault in a reader")
    }
}

fn serving(port: u16) -> Serving {
    Serving {
        address: ([127, 0, 0, 1], 1).into(),
        ports: Arc::new(BTreeMap::from([("metrics".to_owned(), port)])),
    }
}

type Faults = Follow<Faulty, fn(&str) -> (Faulty, String)>;

fn follow(fleet: &Arc<Fleet>) -> Faults {
    let asked = Asked {
        kind: PeerKind::Instance,
        pages: PagesSettings {
            listed: Vec::new(),
            dns: None,
            port: None,
        },
        most: 2,
        every: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        is_marked: false,
    };
    Follow::new(Arc::clone(fleet), asked, |path| (Faulty, path.to_owned()))
}

fn addresses(count: u8) -> BTreeSet<SocketAddr> {
    let address = |last| SocketAddr::from(([127, 0, 0, last], 1));
    (1..=count).map(address).collect()
}

#[tokio::test]
async fn addresses_beyond_the_most_are_a_peer_that_is_never_read() {
    let fleet = fleet();
    let mut follow = follow(&fleet);
    let rows = || fleet.peers().unwrap().rows(fleet.clock().now());
    for (found, beyond) in [(2, 0), (3, 1), (4, 1), (2, 0)] {
        follow.on_resolved("name:1", "/", addresses(found));
        let stands = |row: &&crate::fleet::PeerRow| row.address.starts_with("name:1");
        let rows = rows();
        assert_eq!(rows.len(), 2 + beyond, "{found}: {rows:?}");
        let standing: Vec<_> = rows.iter().filter(stands).collect();
        assert_eq!(standing.len(), beyond, "{found}: {rows:?}");
        assert!(
            standing
                .iter()
                .all(|row| row.view.standing == Standing::Lost)
        );
    }
}

#[tokio::test]
async fn a_reader_that_panics_ends_whoever_asks_wherever_its_address_is_from() {
    let page = |authority: &str| PageUrl {
        authority: authority.to_owned(),
        path: "/".to_owned(),
    };
    let pages = |listed: Vec<PageUrl>, dns, port: Option<&str>| PagesSettings {
        listed,
        dns,
        port: port.map(str::to_owned),
    };
    for pages in [
        pages(vec![page("127.0.0.1:1")], None, None),
        pages(Vec::new(), Some(page("127.0.0.1:1")), None),
        pages(Vec::new(), None, Some("metrics")),
    ] {
        let fleet = fleet();
        fleet.published().unwrap().set_serving(vec![serving(7)]);
        let mut follow = follow(&fleet);
        follow.asked.pages = pages.clone();
        let (_stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(follow.run(stopped)).await;
        assert!(ended.unwrap_err().is_panic(), "{pages:?}");
    }
}

/// Answers every question, and counts them.
struct Counted(Arc<AtomicUsize>);

impl Reader for Counted {
    async fn read(&mut self, _: &mut Client, _: &Fleet, _: PeerId) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn a_replica_is_read_while_others_are_told_of_it_and_once_more_as_it_leaves() {
    let fleet = fleet();
    let asked = Asked {
        pages: PagesSettings {
            listed: Vec::new(),
            dns: None,
            port: Some("metrics".to_owned()),
        },
        // None is read again by itself meanwhile.
        every: Duration::from_secs(3_600),
        ..follow(&fleet).asked
    };
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let reader = move |path: &str| (Counted(Arc::clone(&counted)), path.to_owned());
    let (stop, stopped) = oneshot::channel();
    let source = Follow::new(Arc::clone(&fleet), asked, reader).run(stopped);
    let source = tokio::spawn(source);

    let published = fleet.published().unwrap();
    let rows = || {
        let rows = fleet.peers().unwrap().rows(fleet.clock().now()).into_iter();
        rows.map(|row| row.address).collect::<Vec<_>>()
    };
    let until = async |addresses: &[&str], count: usize| {
        while rows() != addresses || reads.load(Ordering::SeqCst) != count {
            tokio::task::yield_now().await;
        }
    };
    published.set_serving(vec![serving(7), serving(8)]);
    until(&["127.0.0.1:7", "127.0.0.1:8"], 2).await;
    published.set_serving(vec![serving(8)]);
    until(&["127.0.0.1:8"], 3).await;
    published.set_serving(vec![serving(7), serving(8)]);
    until(&["127.0.0.1:8", "127.0.0.1:7"], 4).await;
    published.set_serving(Vec::new());
    until(&[], 6).await;

    // What an earlier process of ours started may lack the port.
    let lacking = Serving {
        ports: Arc::default(),
        ..serving(7)
    };
    published.set_serving(vec![serving(7), lacking.clone()]);
    let standing = "replicas without port metrics";
    until(&[standing, "127.0.0.1:7"], 7).await;
    published.set_serving(vec![lacking]);
    until(&[standing], 8).await;
    published.set_serving(Vec::new());
    until(&[], 8).await;
    stop.send(()).unwrap();
    source.await.unwrap();
}

#[test]
fn the_pause_grows_with_failures_within_a_bound() {
    let every = Duration::from_secs(1);
    for failures in 0..100 {
        let pause = pause(every, failures);
        assert!(pause >= every.mul_f64(0.9), "{failures}: {pause:?}");
        assert!(pause <= PAUSE_MAX.mul_f64(1.1), "{failures}: {pause:?}");
    }
    assert!(pause(every, 2) > every * 3);
    assert!(pause(PAUSE_MAX * 2, 5) >= PAUSE_MAX);
}
