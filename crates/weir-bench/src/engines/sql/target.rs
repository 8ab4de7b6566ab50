//! Where a server is, and how to get a connection to it.

use std::path::PathBuf;
use std::time::Duration;

use mysql::consts::CapabilityFlags;
use mysql::{Conn, DriverError, Opts, OptsBuilder, UrlError};

use crate::engine::{EngineKind, ServerChoice};
use crate::error::{Error, Result};

/// The engine's name in errors.
pub const NAME: &str = EngineKind::Server.name();
/// The database where a URL names none.
pub const DATABASE: &str = "weir_bench";
/// Statements that a connection keeps prepared; TPC-C has some thirty.
const PREPARED_MAX: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Turns a driver's error into one of the benchmark.
pub fn failed(operation: &'static str) -> impl Fn(mysql::Error) -> Error {
    move |error| {
        let message = message(&error);
        match &error {
            mysql::Error::MySqlError(of_server) if CONFLICTS.contains(&of_server.code) => {
                Error::Conflict { engine: NAME, message }
            }
            _ => Error::engine(NAME, operation, message),
        }
    }
}

/// The server's codes for a deadlock and a lock that wasn't to be had in time: MyRocks doesn't look
/// for deadlocks, as it is set up by default.
const CONFLICTS: [u16; 2] = [1213, 1205];

/// An error in words, without the driver's wrapping.
fn message(error: &mysql::Error) -> String {
    match error {
        mysql::Error::MySqlError(of_server) => of_server.to_string(),
        mysql::Error::IoError(of_system) => of_system.to_string(),
        mysql::Error::DriverError(DriverError::CouldNotConnect(Some((address, why, _)))) => {
            format!("{address}: {why}")
        }
        mysql::Error::DriverError(of_driver) => of_driver.to_string(),
        mysql::Error::UrlError(of_url) => of_url.to_string(),
        other => other.to_string(),
    }
}

/// A URL's text without the password in it, and the password.
///
/// # Errors
/// When it is no URL of a server.
pub fn split_password(url: &str) -> Result<(String, Option<String>)> {
    let opts = parse(url)?;
    let Some(password) = opts.get_pass() else { return Ok((url.into(), None)) };
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = start + url[start..].find(['/', '?', '#']).unwrap_or(url.len() - start);
    let at = url[start..end].rfind('@').map(|at| start + at);
    let colon = url[start..end].find(':').map(|colon| start + colon);
    let (Some(at), Some(colon)) = (at, colon) else {
        return Err(Error::Usage(
            "a password goes before the host: mysql://user:password@host".into(),
        ));
    };
    Ok((format!("{}{}", &url[..colon], &url[at..]), Some(password.into())))
}

fn parse(url: &str) -> Result<Opts> {
    Opts::from_url(url).map_err(|error| {
        let what = match error {
            UrlError::ParseError(what) => what.to_string(),
            other => other.to_string(),
        };
        Error::Usage(format!(
            "{what}; a server's URL is mysql://user:password@host:port/database, with ?socket=FILE where \
             it has a socket"
        ))
    })
}

/// A server's address, user and database.
pub struct Target {
    opts: Opts,
    /// The database.
    pub database: String,
    /// For people: where it is, without a password.
    pub shown: String,
}

impl Target {
    /// Reads what was chosen.
    ///
    /// # Errors
    /// When the URL makes no sense.
    pub fn new(choice: &ServerChoice) -> Result<Self> {
        let given = parse(&choice.url)?;
        let database = given.get_db_name().filter(|name| !name.is_empty()).unwrap_or(DATABASE);
        let database = database.to_string();
        let socket = choice.socket.clone().or_else(|| given.get_socket().map(PathBuf::from));
        let socket = socket.map(|path| path.to_string_lossy().into_owned());
        let shown = match &socket {
            Some(socket) => socket.clone(),
            None => format!("{}:{}", given.get_ip_or_hostname(), given.get_tcp_port()),
        };
        let user = given.get_user().unwrap_or("root").to_string();
        let builder = OptsBuilder::from_opts(given)
            .user(Some(user))
            .pass(choice.password.clone())
            .socket(socket)
            // The driver would leave TCP for a socket of its own accord, which isn't what was asked
            // for.
            .prefer_socket(false)
            .tcp_connect_timeout(Some(CONNECT_TIMEOUT))
            // An update that changes nothing counts as a row, as with other engines.
            .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
            .stmt_cache_size(Some(PREPARED_MAX))
            .db_name(None::<String>);
        Ok(Target { opts: builder.into(), database, shown })
    }

    /// Connects, with a database that is there.
    ///
    /// # Errors
    /// When there is no server, or it doesn't let the user in.
    pub fn connect(&self, database: Option<&str>) -> Result<Conn> {
        let opts = OptsBuilder::from_opts(self.opts.clone()).db_name(database);
        Conn::new(opts).map_err(|error| {
            let user = self.opts.get_user().unwrap_or_default();
            let what = format!("connecting to {} as `{user}`", self.shown);
            Error::engine(NAME, what, message(&error))
        })
    }

    /// Whether the server is on this machine: what it tells of processes and files can be looked
    /// at.
    pub fn is_local(&self) -> bool {
        let host = self.opts.get_ip_or_hostname();
        self.opts.get_socket().is_some()
            || host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Statements;

    fn choice(url: &str) -> ServerChoice {
        let (url, password) = split_password(url).unwrap();
        ServerChoice {
            url,
            password,
            socket: None,
            table_engine: "weir".into(),
            existing: false,
            statements: Statements::Text,
            keep: false,
        }
    }

    #[test]
    fn a_url_that_makes_no_sense_is_refused_in_words_and_its_password_not_told() {
        for (url, what) in
            [("here", "relative URL without a base; "), ("http://a:secret@b", "URL scheme ")]
        {
            let error = split_password(url).unwrap_err().to_string();
            assert!(error.starts_with(what) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_password_is_kept_apart_from_the_url() {
        let split = |url: &str| split_password(url).unwrap();
        let with = |password: &str| Some(password.to_string());
        assert_eq!(split("mysql://me:pw@h:3307/db"), ("mysql://me@h:3307/db".into(), with("pw")));
        assert_eq!(
            split("mysql://me:a%40b@h/?socket=/s"),
            ("mysql://me@h/?socket=/s".into(), with("a@b"))
        );
        assert_eq!(split("mysql://me@h:3307/db"), ("mysql://me@h:3307/db".into(), None));
        let stored = serde_json::to_string(&choice("mysql://me:secret@h/db")).unwrap();
        assert!(stored.contains("mysql://me@h/db") && !stored.contains("secret"), "{stored}");
        assert!(split_password("mysql://me@h/?password=pw").is_err(), "it would stay in the URL");
    }

    #[test]
    fn what_is_left_out_has_defaults() {
        let target = Target::new(&choice("mysql://localhost")).unwrap();
        assert_eq!(target.database, DATABASE);
        assert_eq!(target.shown, "localhost:3306");
        assert!(target.is_local());
        let target = Target::new(&choice("mysql://you@db.example:4000/x")).unwrap();
        assert_eq!((target.database.as_str(), target.shown.as_str()), ("x", "db.example:4000"));
        assert!(!target.is_local());
        let target = Target::new(&choice("mysql://far/?socket=/run/s")).unwrap();
        assert_eq!(target.shown, "/run/s");
        assert!(target.is_local());
    }

    #[test]
    fn what_is_no_url_of_a_server_is_refused_with_an_example() {
        for url in ["", "localhost", "http://localhost/", "mysql:", "mysql://h/?colour=red"] {
            let error = split_password(url).unwrap_err();
            assert!(matches!(error, Error::Usage(_)), "{url}");
            assert!(error.to_string().contains("mysql://user:password@host"), "{url}: {error}");
        }
    }
}
