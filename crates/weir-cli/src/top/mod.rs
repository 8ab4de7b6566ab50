//! `weir top`: a running database, live in the terminal.
//!
//! [`history`] keeps the last samples of the endpoint's metrics and makes rates of them;
//! [`figures`] says which lines there are and what they are called, on the screen as in the
//! snapshot; [`screen`] draws them.

mod figures;
mod history;
mod screen;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use weir_bench::Error;
use weir_status::{Address, FetchError, fetch};

use crate::interrupt::{exit_code, stop_on_interrupt};
use crate::output::print;
use history::{History, Sample};

/// How long the endpoint may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often new samples are asked after while no key is pressed.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Name of the socket in a database's directory.
const SOCKET: &str = "weir.sock";

#[derive(Args)]
pub struct Top {
    /// Where the database tells its figures: a port of this machine, ADDRESS:PORT, unix:FILE, or a
    /// directory with a socket named weir.sock
    #[arg(required_unless_present = "socket", value_name = "ADDRESS")]
    address: Option<String>,

    /// The same, a Unix socket
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    socket: Option<PathBuf>,

    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_parser = parse_interval, value_name = "SECONDS")]
    interval: f64,

    /// Print one snapshot instead, with rates over one interval
    #[arg(long)]
    once: bool,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if !(0.05..=3600.0).contains(&seconds) {
        return Err(format!("`{text}`: use 0.05 to 3600 seconds"));
    }
    Ok(seconds)
}

impl Top {
    pub fn run(self) -> Result<ExitCode> {
        let address = self.address()?;
        let interval = Duration::from_secs_f64(self.interval);
        let mut history = History::new();
        history.push(look(&address)?);
        if self.once {
            std::thread::sleep(interval);
            history.push(look(&address)?);
            print(&figures::snapshot(&address, &history))?;
            return Ok(ExitCode::SUCCESS);
        }
        ensure!(io::stdout().is_terminal(), "this needs a terminal; see --once");
        // However it ends, the terminal is as it was.
        let stop = stop_on_interrupt()?;
        let mut terminal = ratatui::try_init().context("this needs a terminal; see --once")?;
        let ended = watch(&mut terminal, &address, interval, &mut history, &stop);
        ratatui::restore();
        ended?;
        Ok(exit_code(&stop, true))
    }

    fn address(&self) -> Result<Address> {
        if let Some(path) = &self.socket {
            return Ok(Address::Unix(path.clone()));
        }
        let text = self.address.as_deref().unwrap_or_default();
        let dir = PathBuf::from(text);
        if dir.is_dir() {
            return Ok(Address::Unix(dir.join(SOCKET)));
        }
        Ok(text.parse().map_err(|error| Error::Usage(format!("{error}")))?)
    }
}

fn look(address: &Address) -> Result<Sample, FetchError> {
    Ok(Sample { at: Instant::now(), metrics: fetch(address, TIMEOUT)? })
}

/// Looks again and again, on a thread of its own: keys are heard while a database doesn't answer.
fn looks(address: &Address, interval: Duration) -> Receiver<Result<Sample, FetchError>> {
    let (sender, looks) = mpsc::channel();
    let address = address.clone();
    thread::spawn(move || {
        loop {
            thread::sleep(interval);
            if sender.send(look(&address)).is_err() {
                return;
            }
        }
    });
    looks
}

/// Draws what is looked at until the user has seen enough. A database that goes away stays on the
/// screen, with the reason, and is asked again.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    address: &Address,
    interval: Duration,
    history: &mut History,
    stop: &AtomicBool,
) -> Result<()> {
    let looks = looks(address, interval);
    let mut trouble: Option<String> = None;
    while !stop.load(Ordering::Relaxed) {
        let frame = screen::Screen { address, history, trouble: trouble.as_deref() };
        terminal.draw(|area| frame.draw(area)).context("drawing")?;
        let look = loop {
            if event::poll(LOOK_AGAIN)? {
                if is_end(&event::read()?) {
                    return Ok(());
                }
                break None;
            }
            if let Ok(look) = looks.try_recv() {
                break Some(look);
            }
            if stop.load(Ordering::Relaxed) {
                break None;
            }
        };
        match look {
            Some(Ok(sample)) => {
                history.push(sample);
                trouble = None;
            }
            Some(Err(error)) => trouble = Some(error.to_string()),
            None => {}
        }
    }
    Ok(())
}

fn is_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let quit = matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc);
    key.kind == KeyEventKind::Press && (quit || interrupt)
}
