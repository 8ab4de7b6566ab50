//! `weir bench experiment`: the studies of page writing.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use clap::Args;
use weir_bench::experiment::{self, Case, CaseReport, Experiment, Report};
use weir_bench::files::write_json;
use weir_bench::{Error, report, run};

use crate::interrupt::{exit_code, stop_on_interrupt};
use crate::output::{ProgressLine, print, tell};
use crate::place::{Home, check_place, default_place};

#[derive(Args)]
pub struct Run {
    /// redo-size, dirty-limit, nothing-to-tune, decay or wave
    experiment: Experiment,

    /// Size: at 1 it takes a few minutes, and rows or seconds grow in proportion
    #[arg(long, default_value_t = 1.0)]
    scale: f64,

    /// Only the cases whose name has this in it
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,

    /// Directory of the databases, new or empty; a temporary one by default
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Directory of the results; by default a new one in bench-results/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// No progress line
    #[arg(long)]
    quiet: bool,
}

impl Run {
    pub fn run(self) -> Result<ExitCode> {
        if !(0.01..=1000.0).contains(&self.scale) {
            let message = format!("a scale of {}: use 0.01 to 1000", self.scale);
            return Err(Error::Usage(message).into());
        }
        let mut cases = experiment::cases(self.experiment, self.scale);
        cases.retain(|case| case.label.contains(&self.only));
        if cases.is_empty() {
            let message = format!("no case of {} has `{}` in its name", self.experiment, self.only);
            return Err(Error::Usage(message).into());
        }
        let out = self.out.clone().unwrap_or_else(|| default_place(self.experiment, ""));
        let table = out.join(format!("{}.json", self.experiment));
        check_place(&table)?;
        let stop = stop_on_interrupt()?;
        let mut done = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let title = format!("{}/{} {}", number + 1, cases.len(), case.label);
            done.extend(self.case(case, &title, &out, &stop)?);
        }
        let text = experiment::tables(self.experiment, &done);
        let legend = experiment::legend(self.experiment);
        // What was measured is shown, whatever becomes of the file.
        print(&format!("{text}\n{legend}\nEvery second of each case: {}\n", out.display()))?;
        let report = Report { experiment: self.experiment, scale: self.scale, cases: done };
        write_json(&table, &report)?;
        Ok(exit_code(&stop, true))
    }

    fn case(
        &self,
        case: &Case,
        title: &str,
        out: &std::path::Path,
        stop: &AtomicBool,
    ) -> Result<Option<CaseReport>> {
        let home = Home::new(self.dir.as_deref(), false)?;
        let mut line = ProgressLine::new();
        let result = run::run(&case.settings, home.path(), stop, &mut |progress| {
            if !self.quiet {
                let text = format!("{title}  {}", report::progress_line(progress));
                line.show(&progress.title, &text);
            }
        });
        line.end();
        let result = result?;
        home.remove()?;
        let file = format!("{}-{}.json", self.experiment, case.label);
        result.save(&out.join(&file))?;
        if result.interrupted {
            tell(&format!("{title}: interrupted, and left out of the table"));
            return Ok(None);
        }
        let report = CaseReport::of(case, &result, file);
        if report.is_none() {
            tell(&format!("{title}: too short to say anything"));
        }
        Ok(report)
    }
}
