//! Who resolves a name: the system, or in tests whoever says so.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

/// The addresses of a name, in any order.
pub type Answer = Vec<SocketAddr>;

/// Answers what `host:port` stands for.
pub type Resolver =
    Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>> + Send + Sync>;

/// Which addresses of a name count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// All.
    Any,
    /// Those of IPv4.
    Ipv4,
    /// Those of IPv6.
    Ipv6,
}

impl Family {
    pub(super) const fn includes(self, address: SocketAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
        }
    }
}

/// Asks the system's resolver, hosts file included.
#[must_use]
pub fn system_resolver() -> Resolver {
    Arc::new(|name| {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host(name).await?;
            Ok(addresses.collect())
        })
    })
}
