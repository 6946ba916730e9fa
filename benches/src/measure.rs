//! Times and compares: two sides turn about in one run, since a machine's speed changes with its neighbours'.

use std::{fmt, fs, time::Instant};

/// What an operation costs, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// The median time on the clock.
    pub p50: f64,
    /// The mean time of the thread on a processor, the kernel's for it included.
    pub cpu: f64,
}

/// How often.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// How often each side has its turn.
    pub rounds: usize,
    /// How many operations a turn has.
    pub operations: usize,
    /// How many calls make an operation; more than one for what takes less than a microsecond.
    pub calls: usize,
}

impl Default for Times {
    fn default() -> Self {
        Self { rounds: 7, operations: 1_000, calls: 1 }
    }
}

/// Has two sides turn about, and returns the median cost of each, and of their ratios turn by turn.
///
/// Each is called with a number that rises from 0 and is the same for both.
pub fn compare(times: Times, mut a: impl FnMut(usize), mut b: impl FnMut(usize)) -> Compared {
    let mut turns = Vec::new();
    for round in 0..times.rounds {
        turns.push((turn(times, round, &mut a), turn(times, round, &mut b)));
    }
    Compared::of(&turns)
}

/// Measures one side alone.
pub fn alone(times: Times, mut work: impl FnMut(usize)) -> Cost {
    let turns: Vec<_> = (0..times.rounds).map(|round| turn(times, round, &mut work)).collect();
    median_of(&turns)
}

/// Measures one turn of one side.
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

/// Returns how long this thread was on a processor, in nanoseconds.
fn cpu_nanos() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default()
}

/// Two sides, and how the first compares with the second.
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
    /// Returns the medians of turns that followed one another.
    pub fn of(turns: &[(Cost, Cost)]) -> Self {
        let all = |side: fn(&(Cost, Cost)) -> Cost| median_of(&turns.iter().map(side).collect::<Vec<_>>());
        Self {
            a: all(|(a, _)| *a),
            b: all(|(_, b)| *b),
            ratio: all(|(a, b)| Cost { p50: a.p50 / b.p50, cpu: a.cpu / b.cpu }),
        }
    }
}

/// A figure as it is printed and quoted.
#[derive(Debug)]
pub struct Line {
    /// Which figure, and of what.
    pub name: String,
    /// The first side and the second, with units.
    pub sides: (String, String),
    /// What is judged; a ratio, or a quantity in the unit that the name says.
    pub value: f64,
    /// The same by time on a processor, where it is a ratio of times.
    pub cpu: Option<f64>,
    /// What it must reach, and what it should.
    pub goal: Goal,
}

/// What a figure must reach, and what it should.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// At most these.
    AtMost(f64, f64),
    /// At least these.
    AtLeast(f64, f64),
    /// Nothing: for information.
    None,
}

impl Line {
    /// Makes a line of two sides that were timed.
    pub fn ratio(name: impl Into<String>, compared: Compared, goal: Goal) -> Self {
        Self {
            name: name.into(),
            sides: (micros(compared.a.p50), micros(compared.b.p50)),
            value: compared.ratio.p50,
            cpu: Some(compared.ratio.cpu),
            goal,
        }
    }

    /// Returns the heads of the columns.
    pub fn heads() -> String {
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
