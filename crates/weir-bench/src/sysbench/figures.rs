//! The server's own figures, asked for once a second while sysbench runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use mysql::Conn;

use super::output::Second;
use crate::engines::sql::facts::{Family, status};
use crate::every_second::EverySecond;

/// A storage engine's figures by name.
pub type Figures = BTreeMap<String, f64>;

/// Asks until it is told to end.
pub struct Sampler {
    every_second: EverySecond,
    seen: Arc<Mutex<Vec<Figures>>>,
}

impl Sampler {
    /// Begins; the first answer is that of the first second's end.
    pub fn start(control: Conn, family: Family) -> Sampler {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (control, keep) = (Mutex::new(control), Arc::clone(&seen));
        let ask = move || {
            let figures = status(&mut lock(&control), family).into_iter().collect();
            lock(&keep).push(figures);
            Ok(())
        };
        Sampler { every_second: EverySecond::start("figures", ask), seen }
    }

    /// Ends, and gives each second what was seen at its end.
    ///
    /// # Errors
    /// None that asking has.
    pub fn end(self, seconds: &mut [Second]) -> crate::error::Result<()> {
        self.every_second.stop()?;
        for (second, figures) in seconds.iter_mut().zip(lock(&self.seen).drain(..)) {
            second.figures = figures;
        }
        Ok(())
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("no thread panicked")
}
