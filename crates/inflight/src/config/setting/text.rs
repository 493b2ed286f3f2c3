//! Texts of a form, and addresses.

use std::net::SocketAddr;

use super::{Setting, refuse};
use crate::config::document::{Node, Value};
use crate::config::error::Problems;

/// What a text must look like.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Form {
    /// What it is, for messages.
    pub(in crate::config) called: &'static str,
    /// Whether a text has the form.
    pub(in crate::config) fits: fn(&str) -> bool,
}

/// A name that can be a metric label, a file name and a part of a URL.
pub(in crate::config) const NAME: Form = Form {
    called: "1 to 63 letters, digits, `-`, `_` or `.`, beginning with a letter or digit",
    fits: |text| {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        text.len() <= 63
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(word)
    },
};

/// A path of a URL.
pub(in crate::config) const URL_PATH: Form = Form {
    called: "a path that begins with `/`, without spaces, `?` or `#`",
    fits: |text| {
        text.starts_with('/')
            && !text.contains(['?', '#'])
            && text.is_ascii()
            && http::uri::PathAndQuery::try_from(text).is_ok()
    },
};

/// Where something is asked over HTTP, without a scheme.
pub(in crate::config) const AUTHORITY: Form = Form {
    called: "HOST:PORT, such as 10.0.0.2:9900 or gateway-b:9900",
    fits: |text| {
        let authority = text.parse::<http::uri::Authority>();
        authority.is_ok_and(|authority| {
            let port = authority.port_u16().unwrap_or(0);
            port > 0 && !authority.host().is_empty() && !text.contains('@')
        })
    },
};

/// A page that is read over HTTP without TLS.
pub(in crate::config) const PAGE: Form = Form {
    called: "http://HOST:PORT, with a path where it has one; without TLS",
    fits: |text| {
        let Some(rest) = text.strip_prefix("http://") else {
            return false;
        };
        let authority = rest.split_once(['/', '?']).map_or(rest, |(host, _)| host);
        (AUTHORITY.fits)(authority) && !text.contains('#') && text.parse::<http::Uri>().is_ok()
    },
};

/// A metric's name.
pub(in crate::config) const METRIC: Form = Form {
    called: "a metric's name: letters, digits, `_` or `:`, not beginning with a digit",
    fits: |text| {
        let letter = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':');
        text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
    },
};

/// A query.
pub(in crate::config) const QUERY: Form = Form {
    called: "a PromQL query",
    fits: |text| !text.trim().is_empty() && text.len() <= 16_384 && !text.contains('\0'),
};

/// A header's name.
pub(in crate::config) const HEADER: Form = Form {
    called: "a header name",
    fits: |text| http::HeaderName::from_bytes(text.as_bytes()).is_ok(),
};

/// A path of a file.
pub(in crate::config) const FILE: Form = Form {
    called: "the path of a file",
    fits: |text| !text.is_empty() && !text.contains('\0'),
};

/// A file that another system reads and that is replaced as a whole.
pub(in crate::config) const JSON_FILE: Form = Form {
    called: "an absolute path, without `..`, of a file whose name ends in `.json`",
    fits: |text| {
        let stem = text
            .rsplit('/')
            .next()
            .and_then(|name| name.strip_suffix(".json"));
        // One file has one name, so that two fleets never write the same.
        let is_plain = text.starts_with('/') && !text.split('/').any(|part| part == "..");
        is_plain && !text.contains('\0') && stem.is_some_and(|stem| !stem.is_empty())
    },
};

/// The name of a port, which stands in a command as `{port.NAME}`.
pub(in crate::config) const PORT_NAME: Form = Form {
    called: "1 to 32 letters, digits or `_`, beginning with a letter",
    fits: |text| {
        text.len() <= 32
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    },
};

/// A folder for sockets, whose paths the system keeps short.
pub(in crate::config) const SOCKET_FOLDER: Form = Form {
    called: "an absolute path of a folder, at most 80 bytes long",
    fits: |text| text.starts_with('/') && text.len() <= 80 && !text.contains('\0'),
};

/// A gRPC service's name; empty asks for the server as a whole.
pub(in crate::config) const SERVICE: Form = Form {
    called: "the name of a gRPC service, or \"\" for the server as a whole",
    fits: |text| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
    },
};

/// A host's name and a port.
pub(in crate::config) const HOST_PORT: Form = Form {
    called: "NAME:PORT, such as triton:8001",
    fits: |text| {
        let Some((name, port)) = text.rsplit_once(':') else {
            return false;
        };
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_number = port.bytes().all(|b| b.is_ascii_digit());
        name.len() <= 253
            && name.split('.').all(label)
            && is_number
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    },
};

/// An argument of a command.
pub(in crate::config) const ARGUMENT: Form = Form {
    called: "text without a NUL character",
    fits: |text| !text.contains('\0'),
};

impl Setting for String {
    type Range = Form;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let text = match &node.value {
            Value::Text(text) => text,
            // A number or a yes is a text as well, in the file's own spelling: `- 8080`.
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) if !node.spelled.is_empty() => {
                &node.spelled
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {
                refuse::<Self>(node, "is not text", range, problems);
                return None;
            }
            // To YAML an unquoted `{port}` in a list is a mapping.
            Value::Mapping(entries) if matches!(entries.as_slice(), [one] if matches!(one.node.value, Value::Null)) =>
            {
                let key = entries.first().map_or("", |one| one.key.as_str());
                let what = format!("is a mapping to YAML: write \"{{{key}}}\", with the quotes");
                problems.refuse(&node.place, what, range.called);
                return None;
            }
            Value::List(_) | Value::Mapping(_) => {
                refuse::<Self>(node, "is not text", range, problems);
                return None;
            }
        };
        if (range.fits)(text) {
            return Some(text.clone());
        }
        refuse::<Self>(node, "does not fit", range, problems);
        None
    }

    fn allowed(range: &Self::Range) -> String {
        range.called.to_owned()
    }
}

/// The ports an address may have.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) enum Ports {
    /// Port 0 takes any free one.
    Listen,
    /// Somebody else's address.
    Connect,
}

impl Setting for SocketAddr {
    type Range = Ports;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let Value::Text(text) = &node.value else {
            refuse::<Self>(node, "is not an address", range, problems);
            return None;
        };
        let address = text.parse::<Self>();
        let why = match (address, range) {
            (Ok(address), Ports::Connect) if address.port() == 0 => "has port 0",
            (Ok(address), Ports::Connect | Ports::Listen) => return Some(address),
            (Err(_), _) => "is not an address",
        };
        refuse::<Self>(node, why, range, problems);
        None
    }

    fn allowed(range: &Self::Range) -> String {
        match range {
            Ports::Listen => {
                "IP:PORT, such as 127.0.0.1:8080, or [::1]:8080; port 0 takes a free one"
            }
            Ports::Connect => "IP:PORT, such as 10.0.0.1:8000",
        }
        .to_owned()
    }
}
