//! The configuration file of a running binary: told by SIGHUP, or seen.

use std::thread;

use rustix::process::Signal;

use super::instance::{Instance, PATIENCE, configuration, fleet, get, wait_until};

const SERVE: &[&str] = &["__serve", "--work", "1ms"];

fn of_size(min: u32, max: u32) -> String {
    let size = format!("min: {min}, max: {max}");
    fleet("hello", SERVE, "").replace("min: 0, max: 4", &size)
}

fn max(instance: &Instance) -> u64 {
    instance.fleet("hello")["replicas"]["max"].as_u64().unwrap()
}

fn refusals(instance: &Instance) -> usize {
    instance.said().matches("configuration refused").count()
}

#[test]
fn a_file_that_changed_is_put_in_force_by_itself_and_by_sighup_and_replicas_stay() {
    let mut instance = Instance::start(&[of_size(1, 4)]);
    let is_up = |instance: &Instance| instance.fleet("hello")["replicas"]["ready"] == 1;
    wait_until(|| is_up(&instance), "a replica");
    let before = instance.replicas();

    instance.rewrite(&configuration(&[of_size(1, 5)]));
    wait_until(|| max(&instance) == 5, "seen by itself");

    instance.rewrite(&configuration(&[of_size(1, 6)]));
    instance.signal(Signal::HUP);
    instance.signal(Signal::HUP);
    wait_until(|| max(&instance) == 6, "told by SIGHUP");
    assert_eq!(instance.replicas(), before);
    assert_eq!(refusals(&instance), 0);

    instance.signal(Signal::TERM);
    instance.signal(Signal::HUP);
    assert_eq!(instance.ended(), Some(0));
}

#[test]
fn a_file_cut_in_the_middle_is_refused_with_all_its_problems_and_the_fleet_serves_on() {
    let instance = Instance::start(&[of_size(1, 4)]);
    let whole = configuration(&[of_size(1, 5)]);
    instance.rewrite(&whole[..whole.len() / 2]);
    wait_until(|| refusals(&instance) == 1, "the half refused");
    let (status, told) = get(instance.admin(), "/readyz", PATIENCE).unwrap();
    assert!(told.contains("configuration_refused"), "{status} {told}");
    assert_eq!(max(&instance), 4);
    let (status, _) = get(instance.gateway(0), "/", PATIENCE).unwrap();
    assert_eq!(status, 200);

    instance.rewrite(&whole);
    wait_until(|| max(&instance) == 5, "the whole in force");
    let (_, told) = get(instance.admin(), "/readyz", PATIENCE).unwrap();
    assert!(!told.contains("configuration_refused"), "{told}");
}

#[test]
fn a_fleet_that_was_removed_comes_back_once_its_replicas_are_gone_and_is_never_there_twice() {
    let keys = [of_size(1, 4), fleet("other", SERVE, "")];
    let instance = Instance::start(&keys);
    wait_until(
        || instance.fleet("hello")["replicas"]["ready"] == 1,
        "a replica",
    );
    let gateway = instance.gateway(0);
    let client = thread::spawn(move || get(gateway, "/?work=8s", PATIENCE).unwrap().0);
    wait_until(
        || instance.fleet("hello")["load"]["in_flight"] == 1.0,
        "one in flight",
    );

    instance.rewrite(&configuration(&keys[1..]));
    instance.signal(Signal::HUP);
    wait_until(
        || instance.said().contains("fleet was removed"),
        "the removal",
    );
    instance.rewrite(&configuration(&keys));
    instance.signal(Signal::HUP);
    wait_until(|| refusals(&instance) == 1, "the refusal");
    assert!(instance.said().contains("still drains"));
    assert_eq!(client.join().unwrap(), 200);

    wait_until(
        || {
            // Told again and again: nobody tells when the last replica is gone.
            instance.signal(Signal::HUP);
            instance.said().contains("configuration in force")
                && instance.fleet("hello")["replicas"]["ready"] == 1
        },
        "the fleet again",
    );
}
