//! Any server that speaks MySQL's protocol, with the tables in one of its storage engines.
//!
//! The steps are the embedded engines'; each call of a [`Session`] is one statement, but for
//! inserts with deletes, which are a transaction of several. Each client has a connection of its
//! own, and there is one more that asks for figures once a second.
//!
//! The server does its work in a process of its own. When that is on this machine and may be looked
//! at, memory, device traffic and processor time are those of its process; otherwise they are not
//! known, and the result says so. The server's settings are not touched: memory, redo log and
//! durability are what it has ([`facts`]), and the result tells them.
//!
//! | file            | what                                                    |
//! |-----------------|---------------------------------------------------------|
//! | [`target`]      | where the server is: URL, connections, errors           |
//! | [`facts`]       | what it tells about itself                              |
//! | [`statements`]  | the SQL                                                 |
//! | [`existing`]    | tables that are there already                           |
//! | `session`       | one client's connection                                 |

pub mod existing;
pub mod facts;
mod session;
pub mod statements;
pub mod target;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use mysql::Conn;
use mysql::prelude::Queryable;

use crate::accounting::Place;
use crate::engine::{Engine, EngineInfo, EngineOptions, Limits, ServerChoice, Session, Statements};
use crate::error::{Error, Result};
use crate::tpcc;
use facts::Family;
use session::SqlSession;
use statements::{create_table, table_name};
use target::{Target, failed};

/// Connects to the server that `options` names, and makes its database if need be.
///
/// # Errors
/// When there is no server, it doesn't let the user in, has no such storage engine, or has tables
/// of the benchmark's names.
pub fn open(options: &EngineOptions) -> Result<Box<dyn Engine>> {
    let Some(choice) = &options.server else {
        return Err(Error::Usage("a server is named by its URL: --url mysql://user@host/".into()));
    };
    Ok(Box::new(Server::open(choice, options.clients)?))
}

/// One server, and what the benchmark has made there.
pub struct Server {
    target: Target,
    choice: ServerChoice,
    family: Family,
    info: EngineInfo,
    limits: Option<Limits>,
    place: Place,
    /// For everything that isn't a client's work.
    control: Mutex<Conn>,
    made: Mutex<Made>,
}

/// What is to be removed again.
#[derive(Default)]
struct Made {
    tables: BTreeSet<String>,
    database: bool,
}

impl Server {
    fn open(choice: &ServerChoice, clients: u32) -> Result<Self> {
        let target = Target::new(choice)?;
        let (mut control, made, table_engine) = match choice.existing {
            true => take_tables(&target, clients)?,
            false => make_place(&target, choice, clients)?,
        };
        let choice = &ServerChoice { table_engine, ..choice.clone() };
        let family = Family::of(&choice.table_engine);
        let (place, why_unseen) = facts::place(&mut control, &target)?;
        let limits = facts::limits(&mut control, family)?;
        let mut info = facts::info(&mut control, &choice.table_engine)?;
        info.settings.insert(0, format!("statements={}", choice.statements));
        info.notes.extend(why_unseen);
        if limits.is_none() {
            let what =
                "memory, redo log and durability are whatever the server has for this engine";
            info.notes.push(what.into());
        }
        Ok(Server {
            target,
            choice: choice.clone(),
            family,
            info,
            limits,
            place,
            control: Mutex::new(control),
            made: Mutex::new(made),
        })
    }

    /// A connection to the benchmark's database.
    ///
    /// # Errors
    /// The server's.
    pub fn connect(&self) -> Result<Conn> {
        self.target.connect(Some(&self.target.database))
    }

    /// The storage engine that tables are made in.
    pub fn table_engine(&self) -> &str {
        &self.choice.table_engine
    }

    /// Checks that nobody has tables of these names.
    ///
    /// # Errors
    /// Which one there is.
    pub fn refuse_tables(&self, tables: &[String]) -> Result<()> {
        refuse_tables(&mut self.control(), &self.target.database, tables)
    }

    /// Makes a table, which is removed again when the benchmark is over.
    ///
    /// # Errors
    /// The server's.
    pub fn make_table(&self, name: &str, create: &str) -> Result<()> {
        self.control().query_drop(create).map_err(failed("create table"))?;
        self.made().tables.insert(name.to_string());
        Ok(())
    }

    fn control(&self) -> MutexGuard<'_, Conn> {
        self.control.lock().expect("no thread panicked")
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().expect("no thread panicked")
    }

    /// Removes what was made here. The first error ends it: the rest is left behind then.
    fn remove(&self) -> Result<()> {
        let made = std::mem::take(&mut *self.made());
        if self.choice.keep {
            return Ok(());
        }
        let mut control = self.control();
        for table in made.tables {
            let drop = format!("DROP TABLE {}", statements::quoted(&table));
            control.query_drop(drop).map_err(failed("drop table"))?;
        }
        if made.database {
            let drop = format!("DROP DATABASE {}", statements::quoted(&self.target.database));
            control.query_drop(drop).map_err(failed("drop database"))?;
        }
        Ok(())
    }
}

/// A connection to where tables can be made, what was made for that, and the tables' storage
/// engine.
fn make_place(
    target: &Target,
    choice: &ServerChoice,
    clients: u32,
) -> Result<(Conn, Made, String)> {
    let mut control = target.connect(None)?;
    facts::require_engine(&mut control, &choice.table_engine)?;
    let made = make_database(&mut control, &target.database)?;
    control = target.connect(Some(&target.database))?;
    let tables: Vec<_> = (0..clients).map(table_name).collect();
    refuse_tables(&mut control, &target.database, &tables)?;
    Ok((control, made, choice.table_engine.clone()))
}

/// The same where somebody has made tables.
fn take_tables(target: &Target, clients: u32) -> Result<(Conn, Made, String)> {
    let mut control = target.connect(Some(&target.database))?;
    let table_engine = existing::require_tables(&mut control, &target.database, clients)?;
    Ok((control, Made::default(), table_engine))
}

/// Makes the database, if it isn't there.
fn make_database(control: &mut Conn, database: &str) -> Result<Made> {
    let find = "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?";
    let found: Option<u64> =
        control.exec_first(find, (database,)).map_err(failed("find database"))?;
    if found != Some(0) {
        return Ok(Made::default());
    }
    let create = format!("CREATE DATABASE {}", statements::quoted(database));
    control.query_drop(create).map_err(failed("create database"))?;
    Ok(Made { database: true, ..Made::default() })
}

/// Tables of these names may be somebody's.
fn refuse_tables(control: &mut Conn, database: &str, tables: &[String]) -> Result<()> {
    let find = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?";
    let there: Vec<String> = control.exec(find, (database,)).map_err(failed("find tables"))?;
    match tables.iter().find(|name| there.contains(name)) {
        None => Ok(()),
        Some(table) => Err(Error::Usage(format!(
            "the server has a table {database}.{table} already: drop it, or name another database in the URL"
        ))),
    }
}

impl Engine for Server {
    fn info(&self) -> EngineInfo {
        self.info.clone()
    }

    fn create_table(&self, table: u32, indexed: bool) -> Result<()> {
        if self.choice.existing {
            return match indexed {
                true => {
                    existing::require_indexes(&mut self.control(), &self.target.database, table)
                }
                false => Ok(()),
            };
        }
        let create = create_table(table, indexed, &self.choice.table_engine);
        self.make_table(&table_name(table), &create)
    }

    fn session(&self, table: u32) -> Result<Box<dyn Session + '_>> {
        let connection = self.connect()?;
        let prepared = self.choice.statements == Statements::Prepared;
        let mut session = SqlSession::new(&self.target, connection, table, prepared)?;
        session.checks_plans = !self.choice.existing;
        Ok(Box::new(session))
    }

    fn tpcc(&self) -> Option<&dyn tpcc::Store> {
        Some(self)
    }

    fn status(&self) -> Vec<(String, f64)> {
        facts::status(&mut self.control(), self.family)
    }

    fn device_reads(&self) -> Option<u64> {
        facts::device_reads(&mut self.control(), self.family)
    }

    fn unwritten_bytes(&self) -> Option<u64> {
        facts::unwritten_bytes(&mut self.control(), self.family)
    }

    fn place(&self) -> Option<Place> {
        Some(self.place.clone())
    }

    fn limits(&self) -> Option<Limits> {
        self.limits
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.remove()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `close` nothing is left to remove; without it an error was reported already.
        let _ = self.remove();
    }
}

/// Checks a choice before anything is connected to.
///
/// # Errors
/// What makes no sense.
pub fn check(choice: &ServerChoice) -> Result<()> {
    Target::new(choice)?;
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if choice.table_engine.is_empty() || !plain(&choice.table_engine) {
        let what = format!("`{}` is no name of a storage engine", choice.table_engine);
        return Err(Error::Usage(what));
    }
    Ok(())
}
