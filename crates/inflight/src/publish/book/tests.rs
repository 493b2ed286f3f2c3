use std::net::Ipv4Addr;

use super::*;

const DRAIN: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Timestamp {
    Timestamp::ORIGIN + Duration::from_secs(seconds)
}

fn address(id: u64) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(id).unwrap()))
}

fn event(id: u64, change: ReplicaChange) -> TargetEvent {
    TargetEvent {
        replica: ReplicaId(id),
        index: u32::try_from(id).unwrap(),
        address: address(id),
        ports: NamedPorts::default(),
        change,
    }
}

const READY: ReplicaChange = ReplicaChange::Ready { took: None };

fn gone() -> ReplicaChange {
    ReplicaChange::Gone {
        why: "it crashed".to_owned(),
        unexpected: true,
    }
}

/// A book of replicas that are ready, known to so many proxies.
fn book(proxies: usize, replicas: &[u64]) -> Book {
    let mut book = Book::new(Some(proxies), DRAIN, BTreeMap::new());
    for &id in replicas {
        book.on_event(&event(id, ReplicaChange::Starting));
        book.on_event(&event(id, READY));
    }
    book
}

/// What a proxy says of replicas: the id, requests there, whether it knows that it drains.
fn said(proxy: usize, endpoints: &[(u64, u32, bool)]) -> RoutedReading {
    let endpoint = |&(id, in_flight, is_draining): &(u64, u32, bool)| {
        let endpoint = RoutedEndpoint {
            in_flight,
            is_draining,
        };
        (address(id), endpoint)
    };
    RoutedReading {
        proxy,
        endpoints: Ok(endpoints.iter().map(endpoint).collect()),
    }
}

fn silent(proxy: usize) -> RoutedReading {
    RoutedReading {
        proxy,
        endpoints: Err("no connection".to_owned()),
    }
}

fn listed(book: &Book) -> Vec<(u32, Health)> {
    let list = book.list().into_iter();
    list.map(|replica| (replica.index, replica.health))
        .collect()
}

/// Says that the list of this moment is written.
fn write(book: &mut Book, now: Timestamp) {
    let version = book.version().unwrap();
    book.on_written(now, version);
}

#[test]
fn others_are_told_of_what_is_ready_and_of_what_becomes_of_it() {
    let mut book = book(1, &[1, 2]);
    book.on_event(&event(3, ReplicaChange::Starting));
    assert_eq!(listed(&book), [(1, Health::Healthy), (2, Health::Healthy)]);
    let why = "it hangs".to_owned();
    book.on_event(&event(1, ReplicaChange::Unhealthy { why }));
    book.on_event(&event(2, ReplicaChange::Draining));
    assert_eq!(
        listed(&book),
        [(1, Health::Unhealthy), (2, Health::Draining)]
    );
    book.on_event(&event(1, READY));
    book.on_event(&event(2, READY));
    assert_eq!(listed(&book), [(1, Health::Healthy), (2, Health::Healthy)]);
}

#[test]
fn a_replica_that_was_never_ready_is_never_told_of() {
    let mut book = book(1, &[]);
    let before = book.version();
    book.on_event(&event(1, ReplicaChange::Starting));
    book.on_event(&event(1, ReplicaChange::Draining));
    assert_eq!(listed(&book), []);
    book.on_event(&event(1, gone()));
    assert_eq!(book.version(), before);
    assert_eq!(book.waits_for_proxies(), None);
}

#[test]
fn a_replica_that_ends_by_itself_is_told_of_no_more_at_once() {
    let mut book = book(1, &[1, 2]);
    let before = book.version();
    book.on_event(&event(1, gone()));
    assert_ne!(book.version(), before);
    assert_eq!(listed(&book), [(2, Health::Healthy)]);
}

#[test]
fn a_replica_may_end_once_every_proxy_twice_had_nothing_there_and_then_forgot_it() {
    let mut book = book(2, &[1]);
    book.on_event(&event(1, ReplicaChange::Draining));
    for _ in 0..9 {
        book.on_reading(said(0, &[(1, 0, true)]));
        book.on_reading(said(1, &[(1, 2, true)]));
    }
    book.on_reading(said(1, &[(1, 0, true)]));
    assert_eq!(listed(&book), [(1, Health::Draining)]);
    book.on_reading(said(1, &[(1, 0, true)]));
    assert_eq!(listed(&book), []);
    // As long as that is not written nobody knows of it, whatever it says.
    book.on_reading(said(0, &[]));
    book.on_reading(said(1, &[]));
    assert_eq!(book.poll_drained(), None);
    write(&mut book, at(1));
    book.on_reading(said(0, &[]));
    book.on_reading(said(1, &[(1, 0, true)]));
    assert_eq!(book.poll_drained(), None);
    book.on_reading(said(1, &[]));
    assert_eq!(book.poll_drained(), Some(ReplicaId(1)));
    assert_eq!(book.waits_for_proxies(), None);
}

#[test]
fn a_proxy_that_does_not_know_that_a_replica_drains_may_still_send_requests_there() {
    let mut book = book(1, &[1]);
    book.on_event(&event(1, ReplicaChange::Draining));
    for _ in 0..9 {
        // It has not read the file: the replica is healthy to it, or new.
        book.on_reading(said(0, &[(1, 0, false)]));
        book.on_reading(said(0, &[]));
    }
    assert_eq!(listed(&book), [(1, Health::Draining)]);
}

#[test]
fn a_proxy_that_says_nothing_is_waited_for_as_long_as_a_drain_may_take() {
    let mut book = book(2, &[1]);
    book.on_event(&event(1, ReplicaChange::Draining));
    assert_eq!(
        book.poll_timeout(),
        None,
        "no proxy can know before the file says so"
    );
    write(&mut book, at(10));
    for _ in 0..9 {
        book.on_reading(said(0, &[(1, 0, true)]));
        book.on_reading(silent(1));
    }
    assert_eq!(book.poll_timeout(), Some(at(70)));
    book.on_timeout(at(69));
    assert_eq!(listed(&book), [(1, Health::Draining)]);
    book.on_timeout(at(70));
    assert_eq!(listed(&book), []);
    let overdue = book.poll_overdue().unwrap();
    assert_eq!(overdue.why, "1 Envoys do not tell what they have there");
    assert_eq!(book.poll_drained(), None);
    // The time to forget it begins when the file says so, however long that takes.
    assert_eq!(book.poll_timeout(), None);
    write(&mut book, at(80));
    book.on_timeout(at(81));
    assert_eq!(book.poll_drained(), Some(ReplicaId(1)));
}

#[test]
fn an_empty_reading_between_requests_ends_no_drain() {
    let mut book = book(1, &[1]);
    book.on_event(&event(1, ReplicaChange::Draining));
    for in_flight in [0, 1, 0, 3] {
        book.on_reading(said(0, &[(1, in_flight, true)]));
    }
    book.on_reading(said(0, &[(1, 0, true)]));
    book.on_reading(silent(0));
    book.on_reading(said(0, &[(1, 0, true)]));
    assert_eq!(listed(&book), [(1, Health::Draining)]);
}

#[test]
fn a_replica_that_is_wanted_again_is_healthy_at_once_and_drains_anew() {
    let mut book = book(1, &[1]);
    book.on_event(&event(1, ReplicaChange::Draining));
    book.on_reading(said(0, &[(1, 0, true)]));
    book.on_reading(said(0, &[(1, 0, true)]));
    assert_eq!(listed(&book), []);
    book.on_event(&event(1, READY));
    assert_eq!(listed(&book), [(1, Health::Healthy)]);
    write(&mut book, at(1));
    book.on_reading(said(0, &[]));
    book.on_timeout(at(100));
    assert_eq!(book.poll_drained(), None);
    book.on_event(&event(1, ReplicaChange::Draining));
    write(&mut book, at(101));
    assert_eq!(book.poll_timeout(), Some(at(161)));
    book.on_reading(said(0, &[(1, 0, true)]));
    assert_eq!(listed(&book), [(1, Health::Draining)]);
}

#[test]
fn replicas_of_an_earlier_process_are_told_of_all_together_or_not_at_all() {
    let adopted = BTreeMap::from([(1, true), (2, false), (3, true)]);
    let mut book = Book::new(Some(1), DRAIN, adopted);
    assert_eq!(book.version(), None);
    for id in [1, 2, 3] {
        assert_eq!(book.version(), None);
        book.on_event(&event(id, ReplicaChange::Starting));
    }
    assert!(book.version().is_some());
    assert_eq!(listed(&book), [(1, Health::Healthy), (3, Health::Healthy)]);
}

#[test]
fn what_was_found_out_before_another_process_wrote_is_found_out_anew() {
    let mut book = book(1, &[1, 2]);
    for id in [1, 2] {
        book.on_event(&event(id, ReplicaChange::Draining));
    }
    for _ in 0..2 {
        book.on_reading(said(0, &[(1, 0, true), (2, 7, true)]));
    }
    write(&mut book, at(0));
    book.on_reading(said(0, &[(1, 0, true), (2, 0, true)]));
    book.on_taken_back();
    book.on_timeout(at(50));
    book.on_reading(said(0, &[(2, 0, true)]));
    assert_eq!(book.poll_drained(), None);
    assert_eq!(listed(&book), [(2, Health::Draining)]);
    write(&mut book, at(50));
    book.on_timeout(at(51));
    assert_eq!(book.poll_drained(), Some(ReplicaId(1)));
}

#[test]
fn requests_at_each_replica_are_unknown_while_a_proxy_does_not_say() {
    let mut book = book(2, &[1, 2]);
    book.on_reading(said(0, &[(1, 3, false), (9, 9, false)]));
    assert_eq!(book.in_flight(), BTreeMap::new());
    book.on_reading(said(1, &[(1, 4, false), (2, 1, false)]));
    let both = BTreeMap::from([(ReplicaId(1), 7), (ReplicaId(2), 1)]);
    assert_eq!(book.in_flight(), both);
    book.on_reading(silent(0));
    assert_eq!(book.in_flight(), BTreeMap::new());
}

#[test]
fn a_proxy_that_does_not_follow_the_list_is_known_once_it_has_had_time_to() {
    let mut book = book(2, &[1, 2]);
    write(&mut book, at(0));
    let both = said(0, &[(1, 0, false), (2, 0, false)]);
    book.on_reading(both.clone());
    book.on_reading(said(1, &[(1, 0, false)]));
    assert_eq!(book.deaf(at(9)), BTreeSet::new(), "it may still read it");
    write(&mut book, at(9));
    assert_eq!(book.deaf(at(10)), BTreeSet::from([1]));
    book.on_reading(silent(1));
    assert_eq!(book.deaf(at(10)), BTreeSet::new(), "unknown");
    book.on_event(&event(2, ReplicaChange::Draining));
    assert_eq!(book.deaf(at(20)), BTreeSet::new(), "not written");
    write(&mut book, at(20));
    book.on_reading(both);
    assert_eq!(
        book.deaf(at(30)),
        BTreeSet::from([0]),
        "still takes it for healthy"
    );
}

#[test]
fn without_proxies_a_replica_is_told_of_until_it_is_gone() {
    let mut book = Book::new(None, DRAIN, BTreeMap::new());
    book.on_event(&event(1, ReplicaChange::Starting));
    book.on_event(&event(1, READY));
    book.on_event(&event(1, ReplicaChange::Draining));
    assert_eq!(book.poll_timeout(), None);
    book.on_timeout(at(1_000));
    assert_eq!(listed(&book), [(1, Health::Draining)]);
    assert_eq!(book.waits_for_proxies(), None);
    book.on_event(&event(1, gone()));
    assert!(book.is_empty());
}

#[test]
fn proxies_are_waited_for_anew_with_each_replica_and_not_for_a_list_that_is_not_written() {
    let mut book = book(1, &[1, 2]);
    assert_eq!(book.waits_for_proxies(), None);
    book.on_event(&event(1, ReplicaChange::Draining));
    let first = book.waits_for_proxies();
    assert!(first.is_some());
    book.on_reading(said(0, &[(1, 4, true), (2, 0, false)]));
    assert_eq!(book.waits_for_proxies(), first);
    book.on_event(&event(2, ReplicaChange::Draining));
    assert_ne!(book.waits_for_proxies(), first);
    for _ in 0..2 {
        book.on_reading(said(0, &[(1, 0, true), (2, 0, true)]));
    }
    assert_eq!(listed(&book), []);
    assert_eq!(
        book.waits_for_proxies(),
        None,
        "no proxy can have read the list without them"
    );
    write(&mut book, at(2));
    assert!(book.waits_for_proxies().is_some());
}
