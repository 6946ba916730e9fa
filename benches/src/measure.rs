//! Measures and compares two sides that alternate in one run, since the speed of a virtual machine changes with the
//! load of its neighbors.

use std::{fmt, fs, time::Instant};

/// Cost of an operation, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// The median wall-clock time.
    pub p50: f64,
    /// The mean CPU time of the thread, including system time.
    pub cpu: f64,
}

/// Number of measurements.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Number of turns of each side.
    pub rounds: usize,
    /// Operations per turn.
    pub operations: usize,
    /// Calls per operation; more than one for calls of less than a microsecond, which the clock cannot resolve.
    pub calls: usize,
}

impl Default for Times {
    fn default() -> Self {
        Self { rounds: 7, operations: 1_000, calls: 1 }
    }
}

/// Measures two sides in alternating turns. Returns the median cost of each, and the median of the ratios of the turns.
///
/// Calls each side with a number that increases from 0 and is the same for both.
pub fn compare(times: Times, mut a: impl FnMut(usize), mut b: impl FnMut(usize)) -> Compared {
    let mut turns = Vec::new();
    for round in 0..times.rounds {
        turns.push((turn(times, round, &mut a), turn(times, round, &mut b)));
    }
    Compared::of(&turns)
}

/// Measures one side only.
pub fn alone(times: Times, mut work: impl FnMut(usize)) -> Cost {
    let turns: Vec<_> = (0..times.rounds).map(|round| turn(times, round, &mut work)).collect();
    median_of(&turns)
}

/// Measures one turn of one side, after a tenth as many calls to warm up.
pub fn turn(times: Times, round: usize, work: &mut impl FnMut(usize)) -> Cost {
    let first = round * times.operations * times.calls;
    (first..first + times.operations * times.calls / 10).for_each(&mut *work);
    let (mut spent, cpu) = (Vec::with_capacity(times.operations), cpu_nanos());
    for operation in 0..times.operations {
        let start = Instant::now();
        let calls = first + operation * times.calls..first + (operation + 1) * times.calls;
        calls.for_each(&mut *work);
        spent.push(start.elapsed().as_nanos() as f64 / times.calls as f64 / 1e3);
    }
    let cpu = (cpu_nanos() - cpu) as f64 / (times.operations * times.calls) as f64 / 1e3;
    Cost { p50: median(spent), cpu }
}

/// Returns the median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn median_of(turns: &[Cost]) -> Cost {
    let p50 = median(turns.iter().map(|turn| turn.p50).collect());
    Cost { p50, cpu: median(turns.iter().map(|turn| turn.cpu).collect()) }
}

/// Returns the CPU time of this thread, in nanoseconds.
fn cpu_nanos() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default()
}

/// Costs of two sides, and their ratio.
#[derive(Debug, Clone, Copy)]
pub struct Compared {
    /// The first.
    pub a: Cost,
    /// The second.
    pub b: Cost,
    /// The first over the second.
    pub ratio: Cost,
}

impl Compared {
    /// Returns the medians over pairs of turns.
    pub fn of(turns: &[(Cost, Cost)]) -> Self {
        let all = |side: fn(&(Cost, Cost)) -> Cost| median_of(&turns.iter().map(side).collect::<Vec<_>>());
        Self {
            a: all(|(a, _)| *a),
            b: all(|(_, b)| *b),
            ratio: all(|(a, b)| Cost { p50: a.p50 / b.p50, cpu: a.cpu / b.cpu }),
        }
    }
}

/// A result as it is printed and quoted.
#[derive(Debug)]
pub struct Line {
    /// The name of the figure and its case.
    pub name: String,
    /// The first side and the second, with units.
    pub sides: (String, String),
    /// The value that is compared with the goal: a ratio, or a quantity in the unit given in the name.
    pub value: f64,
    /// The ratio of CPU times, if the value is a ratio of times.
    pub cpu: Option<f64>,
    /// The goal.
    pub goal: Goal,
}

/// The required value of a figure, and the value to aim at.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// At most these.
    AtMost(f64, f64),
    /// At least these.
    AtLeast(f64, f64),
    /// No goal; for information.
    None,
}

impl Line {
    /// Returns the line of a comparison.
    pub fn ratio(name: impl Into<String>, compared: Compared, goal: Goal) -> Self {
        Self {
            name: name.into(),
            sides: (micros(compared.a.p50), micros(compared.b.p50)),
            value: compared.ratio.p50,
            cpu: Some(compared.ratio.cpu),
            goal,
        }
    }

    /// Returns the column headers.
    pub fn header() -> String {
        format!(
            "{:46} {:>12} {:>12} {:>8} {:>8}  {:>6} {:>6}  verdict",
            "figure", "A", "B", "value", "cpu", "must", "aim"
        )
    }
}

fn micros(micros: f64) -> String {
    if micros < 10.0 { format!("{micros:.3} us") } else { format!("{micros:.1} us") }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu.map(|cpu| format!("{cpu:.2}")).unwrap_or_default();
        let (must, aim, verdict) = match self.goal {
            Goal::AtMost(must, aim) => {
                (must.to_string(), aim.to_string(), verdict(self.value <= must, self.value <= aim))
            }
            Goal::AtLeast(must, aim) => {
                (must.to_string(), aim.to_string(), verdict(self.value >= must, self.value >= aim))
            }
            Goal::None => (String::new(), String::new(), ""),
        };
        let (a, b) = &self.sides;
        write!(f, "{:46} {a:>12} {b:>12} {:>8.2} {cpu:>8}  {must:>6} {aim:>6}  {verdict}", self.name, self.value)
    }
}

fn verdict(must: bool, aim: bool) -> &'static str {
    match (must, aim) {
        (true, true) => "aim reached",
        (true, false) => "met",
        (false, _) => "MISSED",
    }
}
