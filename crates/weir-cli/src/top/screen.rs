//! The panels as charts in the terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Wrap};

use weir_status::Address;

use super::figures::{Line, PANELS, Panel, headline, number};
use super::history::History;

/// Colours that differ in lightness too.
const COLOURS: [Color; 5] =
    [Color::Cyan, Color::Yellow, Color::Magenta, Color::Green, Color::LightRed];
/// Between the entries of a legend.
const GAP: &str = "  ";
/// Panels are at least this wide and high; on smaller terminals the last ones are left out.
const WIDTH_MIN: u16 = 38;
const HEIGHT_MIN: u16 = 8;

/// What a frame shows.
pub struct Screen<'a> {
    /// Whose figures.
    pub address: &'a Address,
    /// The figures.
    pub history: &'a History,
    /// Why there are no newer ones.
    pub trouble: Option<&'a str>,
}

impl Screen<'_> {
    /// Draws the frame.
    pub fn draw(&self, frame: &mut Frame) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
                .areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Span::styled(headline(self.address, self.history), bold), head);
        let places = places(body);
        for (panel, &area) in PANELS.iter().zip(&places) {
            self.panel(frame, panel, area);
        }
        let text = match (self.trouble, PANELS.len().saturating_sub(places.len())) {
            (Some(trouble), _) => Span::styled(trouble.to_string(), Style::new().fg(Color::Red)),
            (None, 0) => Span::raw("q: quit"),
            (None, left) => Span::raw(format!("q: quit; {left} more in a larger terminal")),
        };
        frame.render_widget(Paragraph::new(text), foot);
    }

    fn panel(&self, frame: &mut Frame, panel: &Panel, area: Rect) {
        let told: Vec<&Line> =
            panel.lines.iter().filter(|line| line.now(panel, self.history).is_some()).collect();
        let block = Block::bordered().title(format!(" {} ({}) ", panel.title, panel.unit));
        let inside = block.inner(area);
        frame.render_widget(block, area);
        let entries = self.legend(panel, &told);
        let rows = rows(&entries, inside.width).min(inside.height / 2).max(1);
        let [legend, chart] =
            Layout::vertical([Constraint::Length(rows), Constraint::Fill(1)]).areas(inside);
        let text = Paragraph::new(Text::from(entries)).wrap(Wrap { trim: true });
        frame.render_widget(text, legend);
        self.chart(frame, panel, &told, chart);
    }

    /// What the lines are called and their newest values: entries that aren't broken.
    fn legend(&self, panel: &Panel, lines: &[&Line]) -> Vec<Span<'static>> {
        let mut spans = Vec::new();
        for (line, colour) in lines.iter().zip(COLOURS) {
            let value = line.now(panel, self.history).map_or("-".into(), number);
            let entry = format!("{} {value}", line.label).replace(' ', "\u{a0}");
            spans.push(Span::styled(entry + GAP, Style::new().fg(colour)));
        }
        if spans.is_empty() {
            spans.push(Span::raw("waiting for a second look"));
        }
        spans
    }

    fn chart(&self, frame: &mut Frame, panel: &Panel, lines: &[&Line], area: Rect) {
        // Two points to a character: what fits is shown, the newest at the right.
        let fit = usize::from(area.width.saturating_sub(8)) * 2;
        let points: Vec<Vec<(f64, f64)>> = lines
            .iter()
            .map(|line| {
                let values = line.values(panel, self.history);
                let from = values.len().saturating_sub(fit);
                let shift = fit.saturating_sub(values.len());
                let place = |(i, value): (usize, &f64)| ((i + shift) as f64, *value);
                values[from..].iter().enumerate().map(place).collect()
            })
            .collect();
        let values = points.iter().flatten().map(|(_, value)| *value);
        let top = values.fold(0.0, f64::max).max(1.0) * 1.05;
        let datasets = points.iter().zip(COLOURS).map(|(points, colour)| {
            Dataset::default()
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(Style::new().fg(colour))
                .data(points)
        });
        let labels = [Span::raw("0"), Span::raw(number(top / 1.05))];
        let chart = Chart::new(datasets.collect())
            .x_axis(Axis::default().bounds([0.0, fit.max(1) as f64]))
            .y_axis(Axis::default().bounds([0.0, top]).labels(labels));
        frame.render_widget(chart, area);
    }
}

/// How many rows the entries take.
fn rows(entries: &[Span], width: u16) -> u16 {
    let (mut rows, mut at) = (1, 0);
    for entry in entries {
        let long = entry.width() - GAP.len();
        if at > 0 && at + long > usize::from(width) {
            (rows, at) = (rows + 1, 0);
        }
        at += entry.width();
    }
    rows
}

/// Where the panels go: two or more to a row as they fit, rows of the same height.
fn places(area: Rect) -> Vec<Rect> {
    let columns = usize::from(area.width / WIDTH_MIN).clamp(1, 4);
    let rows_needed = PANELS.len().div_ceil(columns);
    let rows = usize::from(area.height / HEIGHT_MIN).clamp(1, rows_needed);
    let split = Layout::vertical(vec![Constraint::Fill(1); rows]).split(area);
    let across = Layout::horizontal(vec![Constraint::Fill(1); columns]);
    split.iter().flat_map(|row| across.split(*row).to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::history;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(width: u16, height: u16, trouble: Option<&str>) -> String {
        let sample = |pages: f64| {
            [
                ("weir_checkpoint_age_bytes", 50.0 * 1048576.0),
                ("weir_checkpoint_max_age_bytes", 100.0 * 1048576.0),
                ("weir_pages_written_deadline_total", pages),
            ]
        };
        screen(width, height, &history(&[&sample(0.0), &sample(200.0), &sample(500.0)]), trouble)
    }

    /// What the terminal shows, with plain spaces.
    fn screen(width: u16, height: u16, history: &History, trouble: Option<&str>) -> String {
        let address = Address::loopback(9104);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
        let screen = Screen { address: &address, history, trouble };
        terminal.draw(|frame| screen.draw(frame)).expect("in memory");
        terminal.backend().to_string().replace('\u{a0}', " ")
    }

    #[test]
    fn all_panels_with_titles_and_newest_values() {
        let text = drawn(160, 50, None);
        for panel in PANELS {
            assert!(text.contains(panel.title), "{text}");
        }
        assert!(text.contains("age 50") && text.contains("maximum 100"), "{text}");
        assert!(text.contains("deadline 150") && text.contains("q: quit"), "{text}");
        let dots = text.chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count();
        assert!(dots > 3, "lines are drawn: {text}");
    }

    #[test]
    fn legends_have_the_rows_that_they_need_and_entries_stay_whole() {
        let written = ["deadline", "dirty_limit", "free_frames", "checkpoint", "shutdown"];
        let names = written.map(|reason| format!("weir_pages_written_{reason}_total"));
        let sample = |pages: f64| names.each_ref().map(|name| (name.as_str(), pages));
        let text = screen(38, 30, &history(&[&sample(0.0), &sample(4000.0)]), None);
        for entry in ["deadline", "dirty limit", "free frames", "checkpoint", "shutdown"] {
            assert!(text.contains(&format!("{entry} 2000")), "{entry}: {text}");
        }
    }

    #[test]
    fn small_terminals_and_trouble() {
        assert!(drawn(80, 24, Some("nobody listens")).contains("nobody listens"));
        let small = drawn(80, 24, None);
        assert!(small.contains("Checkpoint Age") && !small.contains("Purge"), "{small}");
        assert!(small.contains("q: quit; 4 more in a larger terminal"), "{small}");
        for (width, height) in [(1, 1), (10, 3), (39, 8), (300, 5)] {
            assert!(!drawn(width, height, None).is_empty(), "{width}x{height}");
        }
    }
}
