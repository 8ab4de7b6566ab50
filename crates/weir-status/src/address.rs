//! Where an endpoint listens.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A TCP address or the path of a Unix socket.
///
/// | written as | means |
/// |---|---|
/// | `9104`, `:9104`, `localhost:9104` | that port of the loopback interface; port 0: any free one |
/// | `10.1.2.3:9104`, `[::1]:9104` | that address |
/// | `unix:FILE`, anything with a `/`, or the name of a file that is there | a Unix socket |
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address; use a port such as 9104, an address such as 10.1.2.3:9104, or unix:FILE"
)]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let plain = text.strip_prefix("http://").unwrap_or(text);
        let plain = plain.trim_end_matches("/metrics").trim_end_matches('/');
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Address::Unix(path.into()));
        }
        if let Ok(address) = plain.parse::<SocketAddr>() {
            return Ok(Address::Tcp(address));
        }
        let port = plain.strip_prefix("localhost:").or(plain.strip_prefix(':')).unwrap_or(plain);
        if let Ok(port) = port.parse::<u16>() {
            return Ok(Address::loopback(port));
        }
        let is_path = text.contains('/') && !text.contains("://");
        if is_path || Path::new(text).exists() {
            return Ok(Address::Unix(text.into()));
        }
        Err(AddressError(text.to_string()))
    }
}

impl Address {
    /// A port of the loopback interface.
    pub fn loopback(port: u16) -> Self {
        Address::Tcp((Ipv4Addr::LOCALHOST, port).into())
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp(address)
    }
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Self {
        Address::Unix(path)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        text.parse::<Address>().map_or_else(|error| error.to_string(), |a| a.to_string())
    }

    #[test]
    fn a_port_alone_is_of_the_loopback_interface() {
        for text in ["9104", ":9104", "localhost:9104", "http://localhost:9104/metrics"] {
            assert_eq!(read(text), "127.0.0.1:9104");
        }
    }

    #[test]
    fn addresses_and_paths() {
        assert_eq!(read("10.1.2.3:80"), "10.1.2.3:80");
        assert_eq!(read("[::1]:80"), "[::1]:80");
        assert_eq!(read("/run/weir.sock"), "unix:/run/weir.sock");
        assert_eq!(read("unix:weir.sock"), "unix:weir.sock");
        assert_eq!(read("Cargo.toml"), "unix:Cargo.toml", "a file that is there");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "weir", "1.2.3.4", "99999", "unix:", "https://there:1/x"] {
            assert!(read(text).contains("is no address"), "{text}");
        }
    }
}
