//! TPC-C: orders, payments and deliveries of a wholesaler, on the embedded engine and on servers.
//!
//! Tables, inputs, transactions and their mix are the standard's, revision 5.11. As with most
//! drivers of it, clients neither think nor type, and each transaction is of any warehouse; so
//! `tpmC` here is no result in the standard's sense, but good for comparing engines. After each run
//! the standard's conditions of consistency are checked, and that no order is lost.
//!
//! [`SHORTCUTS`] tells what else is easier than the standard has it, for all engines alike.
//!
//! | file             | what                                                                |
//! |------------------|---------------------------------------------------------------------|
//! | [`tables`]       | the nine tables                                                     |
//! | [`random`]       | random values, and how many rows there are                          |
//! | [`population`]   | what the tables begin with                                          |
//! | [`transactions`] | the five transactions' inputs, and how often each comes             |
//! | [`store`]        | what it asks of an engine, and the conditions of consistency        |
//! | `embedded`       | the transactions on Weir                                            |
//! | `server`         | the transactions in SQL                                             |
//! | `bench`          | filling, running and checking one open engine                       |
//! | `client`         | a client's loop                                                     |
//! | [`document`]     | what is stored                                                      |
//! | [`report`]       | tables                                                              |

mod bench;
mod client;
pub mod document;
mod embedded;
pub mod population;
pub mod random;
pub mod report;
mod server;
pub mod store;
pub mod tables;
pub mod transactions;

pub use store::Store;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use tempfile::{Builder, TempDir};

use crate::accounting::Place;
use crate::engine::{
    DiskChoice, Engine, EngineInfo, EngineKind, EngineOptions, FlushChoice, Limits, ServerChoice,
    Statements,
};
use crate::engines;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::phase::Progress;
use crate::quantity::counted;

use crate::server::{PrivateServer, ServerSetup, ServerSpec};
use crate::turns::{self, Comparison, Order, announcement, missing};
use bench::{Bench, Watch};
use document::{Document, FORMAT, Load, Run, Settings};
use population::rows_of;
use random::Size;

/// What is easier than the standard has it, for readers of `--help`.
pub const SHORTCUTS: &str = "\
Easier than the standard, for all engines alike, besides that clients neither think nor type:
  - an order's lines are sorted by warehouse and item, so that no two wait for each other's stock
  - a new order adds up no total; Payment returns no addresses nor other data of the customer
  - dates are all the same one
  - deliveries aren't queued, and are one transaction for all districts";

/// What is measured.
#[derive(Debug, Clone)]
pub enum Subject {
    /// Weir in this process.
    Embedded,
    /// A server that is started for it.
    Private(ServerSpec),
    /// A running server.
    Running(ServerChoice),
}

impl Subject {
    /// Its name in tables.
    pub fn label(&self) -> &str {
        match self {
            Subject::Embedded => EngineKind::Weir.name(),
            Subject::Private(spec) => &spec.label,
            Subject::Running(choice) => &choice.table_engine,
        }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is measured, in this order.
    pub subjects: Vec<Subject>,
    /// How servers are started, and what each engine gets.
    pub setup: ServerSetup,
    /// How large the tables are.
    pub size: Size,
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// How often: all in turn, then all again.
    pub rounds: u32,
    /// Whether all are there at once, and each number of clients works on all of them before the
    /// next: see [`crate::turns`]. Of private servers the others are stopped meanwhile.
    pub side_by_side: bool,
    /// Length of each run.
    pub seconds: u32,
    /// How long clients work before each run.
    pub warmup_seconds: u32,
    /// Of all random values.
    pub seed: u64,
    /// How the embedded engine reads and writes files.
    pub disk: DiskChoice,
    /// Where the embedded engine tells its figures.
    pub status_listen: Option<String>,
}

type Turn<'a> = turns::Turn<'a, Subject>;

/// Called with the progress of whatever is at work, and with lines that stay.
pub trait Listener {
    /// Once a second.
    fn progress(&mut self, progress: &Progress);
    /// Something has begun or ended.
    fn line(&mut self, text: &str);
}

/// An engine that is open, and where it is.
struct Opened {
    engine: Box<dyn Engine>,
    place: Place,
    home: Home,
}

/// What goes when the engine is closed.
enum Home {
    Dir(TempDir),
    Server(PrivateServer),
    Elsewhere,
}

impl Opened {
    fn server(&self) -> Option<&PrivateServer> {
        match &self.home {
            Home::Server(server) => Some(server),
            Home::Dir(_) | Home::Elsewhere => None,
        }
    }

    fn end(self) -> Result<()> {
        self.engine.close()?;
        match self.home {
            Home::Dir(dir) => {
                dir.close().map_err(|error| Error::io("removing the database", error))
            }
            Home::Server(server) => server.stop(),
            Home::Elsewhere => Ok(()),
        }
    }
}

impl Plan {
    /// Checks what can be checked before anything is started.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn check(&self) -> Result<()> {
        let usage = |message: String| Err(Error::Usage(message));
        if let Some(clients) = self.clients.iter().find(|clients| !(1..=1024).contains(*clients)) {
            return usage(format!("{clients} clients: use 1 to 1024"));
        }
        if self.subjects.is_empty() || self.clients.is_empty() || self.rounds == 0 {
            return usage("no engines, no clients or no rounds: nothing to run".into());
        }
        if self.seconds == 0 {
            return usage("0 seconds: nothing to run".into());
        }
        let Size { warehouses, customers, items } = self.size;
        // Numbers of warehouses are signed, of 32 bits.
        if !(1..=1_000_000).contains(&warehouses) || customers < 10 || items < 20 {
            return usage(format!("{warehouses} warehouses: use 1 to 1,000,000"));
        }
        let labels = self.subjects.iter().map(|subject| subject.label().to_string());
        let clients = self.clients.iter().map(|&clients| counted(clients, "client"));
        turns::refuse_twice(labels.chain(clients))?;
        for subject in &self.subjects {
            match subject {
                Subject::Embedded => self.setup.limits.check()?,
                Subject::Private(_) => self.setup.check()?,
                Subject::Running(choice) => engines::sql::check(choice)?,
            }
        }
        Ok(())
    }

    /// Runs everything, until `stop` is set. What fails does not keep the rest from running.
    ///
    /// # Errors
    /// Of this program's own surroundings.
    pub fn run(&self, stop: &AtomicBool, listener: &mut dyn Listener) -> Result<Document> {
        self.check()?;
        // Here until all is done, and not just from one subject to the next.
        let _parent = self.setup.parent_dir()?;
        let document = Document {
            format: FORMAT,
            settings: self.settings(),
            environment: Environment::look(None),
            engines: Vec::new(),
            loads: Vec::new(),
            runs: Vec::new(),
        };
        let mut running = Running { plan: self, watch: Watch { stop, listener }, document };
        turns::compare(&mut running, &self.subjects, &self.clients, self.order())?;
        Ok(running.document)
    }

    fn order(&self) -> Order {
        Order { rounds: self.rounds, side_by_side: self.side_by_side }
    }

    fn settings(&self) -> Settings {
        Settings {
            warehouses: self.size.warehouses,
            rounds: self.rounds,
            side_by_side: self.side_by_side,
            seconds: self.seconds,
            warmup_seconds: self.warmup_seconds,
            binlog: self.setup.binlog,
            pinned: self.setup.pinning.is_some(),
            memory_bytes: self.setup.limits.memory_bytes,
            redo_bytes: self.setup.limits.redo_bytes,
            durability: self.setup.limits.durability.to_string(),
            device: self.disk.device.clone(),
            seed: self.seed,
        }
    }

    fn open(&self, subject: &Subject, stop: &AtomicBool) -> Result<Opened> {
        let (kind, dir, server, home) = match subject {
            Subject::Embedded => {
                let dir = Builder::new().prefix("weir-tpcc-").tempdir_in(self.setup.parent_dir()?);
                let dir = dir.map_err(|error| Error::io("creating a directory", error))?;
                (EngineKind::Weir, dir.path().to_path_buf(), None, Home::Dir(dir))
            }
            Subject::Private(spec) => {
                let server = self.setup.start(spec, stop)?;
                let choice = server.choice(&spec.engine, Statements::Prepared);
                (EngineKind::Server, PathBuf::new(), Some(choice), Home::Server(server))
            }
            Subject::Running(choice) => {
                (EngineKind::Server, PathBuf::new(), Some(choice.clone()), Home::Elsewhere)
            }
        };
        let Limits { memory_bytes, redo_bytes, durability } = self.setup.limits;
        let embedded = kind == EngineKind::Weir;
        let options = EngineOptions {
            dir: dir.clone(),
            memory_bytes,
            redo_bytes,
            durability,
            // None of the Insert Benchmark's tables.
            clients: 0,
            disk: if embedded { self.disk.clone() } else { DiskChoice::default() },
            status_listen: self.status_listen.clone().filter(|_| embedded),
            flush: FlushChoice::default(),
            server,
        };
        let engine = engines::open(kind, &options)?;
        let place = engine.place().unwrap_or(Place::Here { dir });
        Ok(Opened { engine, place, home })
    }
}

/// A plan that is being carried out, and what came of it so far.
struct Running<'a> {
    plan: &'a Plan,
    watch: Watch<'a>,
    document: Document,
}

impl<'a> Comparison for Running<'a> {
    type Subject = Subject;
    /// A number of clients.
    type Case = u32;
    type Ready = Bench<'a>;

    fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }

    /// Opens a subject and fills its tables.
    fn prepare(&mut self, turn: Turn) -> Result<Bench<'a>> {
        let (plan, Turn { round, subject }) = (self.plan, turn);
        let label = subject.label();
        let filling = format!("filling {}", counted(plan.size.warehouses, "warehouse"));
        let rounds = plan.order().preparations();
        self.watch.listener.line(&announcement(label, round, rounds, &filling));
        let opened = plan.open(subject, self.watch.stop)?;
        self.document.tell_of(subject, &opened);
        let engines = &mut self.document.engines;
        if engines.iter().all(|info| info.name != label) {
            engines.push(EngineInfo { name: label.into(), ..opened.engine.info() });
        }
        let mut bench = Bench::new(plan, label, opened)?;
        let Some(measured) = bench.fill(&mut self.watch)? else {
            bench.opened.end()?;
            return Err(Error::Interrupted);
        };
        let (engine, rows) = (label.into(), rows_of(plan.size));
        self.document.loads.push(Load { engine, round, rows, measured });
        Ok(bench)
    }

    fn case(&mut self, bench: &mut Bench<'a>, turn: Turn, clients: u32) -> Result<()> {
        if self.is_stopped() {
            return Ok(());
        }
        let run = bench.run(empty(turn, clients), &mut self.watch)?;
        self.document.runs.extend(run);
        Ok(())
    }

    fn pause(&self, bench: &Bench) -> Result<()> {
        bench.opened.server().map_or(Ok(()), PrivateServer::pause)
    }

    fn resume(&self, bench: &Bench) -> Result<()> {
        bench.opened.server().map_or(Ok(()), PrivateServer::resume)
    }

    fn end(&mut self, bench: Bench) -> Result<()> {
        bench.opened.end()
    }

    fn failed(&mut self, turns: &[Turn], error: Error) -> Result<()> {
        if let Error::Usage(_) = error {
            return Err(error);
        }
        let label = turns.first().map_or("", |turn| turn.subject.label());
        self.watch.listener.line(&format!("{label}: failed: {error}"));
        let of_turn = |turn| {
            let failure = Some(error.to_string());
            self.plan
                .clients
                .iter()
                .map(move |&clients| Run { failure: failure.clone(), ..empty(turn, clients) })
        };
        let failed = turns.iter().flat_map(|&turn| of_turn(turn));
        let missing = missing(failed, &self.document.runs, Run::is_same);
        self.document.runs.extend(missing);
        Ok(())
    }
}

impl Document {
    /// Fills in on which file system the first subject is, and what a running server has of its own
    /// accord.
    fn tell_of(&mut self, subject: &Subject, opened: &Opened) {
        if self.engines.is_empty() {
            self.environment.filesystem = Environment::look(opened.place.dir()).filesystem;
        }
        if let (Subject::Running(_), Some(limits)) = (subject, opened.engine.limits()) {
            self.settings.memory_bytes = limits.memory_bytes;
            self.settings.redo_bytes = limits.redo_bytes;
            self.settings.durability = limits.durability.to_string();
        }
    }
}

fn empty(turn: Turn, clients: u32) -> Run {
    Run { engine: turn.subject.label().into(), round: turn.round, clients, ..Run::default() }
}
