//! Free ports for replicas, none given twice.
//!
//! A port that we found free can be taken by somebody else before the replica binds it; the
//! replica then fails and its successor gets another. So that this stays rare, ports lie outside
//! the range from which the kernel serves outgoing connections.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many ports below or above the kernel's range are used.
const SPAN: u16 = 12_000;

/// Privileged ports end here.
const LOWEST: u16 = 1_024;

/// What Linux uses for outgoing connections if nobody changed it.
const KERNEL_DEFAULT: (u16, u16) = (32_768, 60_999);

/// The ports of this process's replicas. Clones share what is taken.
#[derive(Clone, Debug)]
pub struct PortPool {
    range: RangeInclusive<u16>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    next: u16,
    taken: BTreeSet<u16>,
}

/// A port that nobody else gets until this is dropped.
#[derive(Debug)]
pub(super) struct ReservedPort {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl PortPool {
    /// Builds a pool of this range; the search begins at a random port of it, so that several
    /// instances on one machine rarely meet.
    #[must_use]
    pub fn new(range: RangeInclusive<u16>) -> Self {
        let next = if range.is_empty() {
            *range.start()
        } else {
            fastrand::u16(range.clone())
        };
        let state = Arc::new(Mutex::new(State {
            next,
            taken: BTreeSet::new(),
        }));
        Self { range, state }
    }

    /// Builds a pool beside the kernel's range for outgoing connections.
    #[must_use]
    pub fn beside_ephemeral() -> Self {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let kernel = text
            .ok()
            .as_deref()
            .and_then(parse_range)
            .unwrap_or(KERNEL_DEFAULT);
        Self::new(range_beside(kernel))
    }

    /// Takes the port of a replica that runs already; `None` when it is somebody's.
    pub(super) fn adopt(&self, port: u16) -> Option<ReservedPort> {
        lock(&self.state).taken.insert(port).then(|| ReservedPort {
            port,
            state: Arc::clone(&self.state),
        })
    }

    /// Takes a port that is free on this host now; `None` when none is.
    pub(super) fn reserve(&self, host: IpAddr) -> Option<ReservedPort> {
        let mut state = lock(&self.state);
        for _ in self.range.clone() {
            let port = state.next;
            state.next = if port >= *self.range.end() {
                *self.range.start()
            } else {
                port.saturating_add(1)
            };
            if !state.taken.contains(&port) && is_free(host, port) {
                state.taken.insert(port);
                return Some(ReservedPort {
                    port,
                    state: Arc::clone(&self.state),
                });
            }
        }
        None
    }
}

impl ReservedPort {
    pub(super) const fn get(&self) -> u16 {
        self.port
    }
}

impl Drop for ReservedPort {
    fn drop(&mut self) {
        lock(&self.state).taken.remove(&self.port);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // No step of ours can leave the state half changed.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_free(host: IpAddr, port: u16) -> bool {
    TcpListener::bind(SocketAddr::new(host, port)).is_ok()
}

fn parse_range(text: &str) -> Option<(u16, u16)> {
    let mut bounds = text.split_ascii_whitespace().map(str::parse);
    let low = bounds.next()?.ok()?;
    let high = bounds.next()?.ok()?;
    (low <= high).then_some((low, high))
}

/// Returns the ports below the kernel's range, those above it when too few are below, and the
/// usual ones when the kernel uses nearly all.
fn range_beside((low, high): (u16, u16)) -> RangeInclusive<u16> {
    if low >= LOWEST.saturating_add(SPAN) {
        low - SPAN..=low - 1
    } else if high <= u16::MAX - SPAN {
        high + 1..=high + SPAN
    } else {
        KERNEL_DEFAULT.0 - SPAN..=KERNEL_DEFAULT.0 - 1
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn the_range_lies_beside_the_kernels() {
        assert_eq!(range_beside((32_768, 60_999)), 20_768..=32_767);
        assert_eq!(range_beside((1_024, 40_000)), 40_001..=52_000);
        assert_eq!(range_beside((1_024, 65_535)), 20_768..=32_767);
        assert_eq!(parse_range("32768\t60999\n"), Some((32_768, 60_999)));
        assert_eq!(parse_range("9 1"), None);
        assert_eq!(parse_range("x"), None);
    }

    #[test]
    fn no_port_is_given_twice_until_it_is_dropped() {
        let start = *PortPool::beside_ephemeral().range.start();
        let pool = PortPool::new(start..=start + 20);
        let first = pool.reserve(HOST).unwrap();
        let others: Vec<_> = std::iter::from_fn(|| pool.clone().reserve(HOST)).collect();
        assert!(others.iter().all(|other| other.get() != first.get()));
        assert!(others.len() <= 20);
        let port = first.get();
        drop(first);
        assert_eq!(pool.reserve(HOST).map(|again| again.get()), Some(port));
    }

    #[test]
    fn a_port_somebody_listens_on_is_not_given() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(PortPool::new(port..=port).reserve(HOST).is_none());
    }
}
