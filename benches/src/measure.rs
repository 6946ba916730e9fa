//! Measures and compares two sides that alternate in one run, since the speed of a virtual machine changes with the
//! load of its neighbors.

use std::{env, fmt, fs, str::FromStr, time::Instant};

/// Cost of an operation, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// The median wall-clock time.
    pub p50: f64,
    /// The 99th percentile of the wall-clock times.
    pub p99: f64,
    /// The mean CPU time of the thread, including system time.
    pub cpu: f64,
}

impl Cost {
    /// Returns the cost of operations with these wall-clock times and this mean CPU time, in microseconds.
    pub fn of(mut spent: Vec<f64>, cpu: f64) -> Self {
        spent.sort_by(f64::total_cmp);
        Self { p50: spent[spent.len() / 2], p99: spent[spent.len() * 99 / 100], cpu }
    }
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
        Self::of(1_000)
    }
}

impl Times {
    /// Returns [`rounds`] turns with this number of operations, or with `BENCH_OPERATIONS` if that is less.
    pub fn of(operations: usize) -> Self {
        let operations = operations.min(variable("BENCH_OPERATIONS", usize::MAX)).max(1);
        Self { rounds: rounds(7), operations, calls: 1 }
    }
}

/// Returns the value of an environment variable that sets a size, or the default.
///
/// # Panics
/// If the value is not of the type.
pub fn variable<T: FromStr<Err: fmt::Debug>>(name: &str, default: T) -> T {
    env::var(name).map_or(default, |value| {
        value.parse().unwrap_or_else(|error| panic!("the environment variable {name} is `{value}`: {error:?}"))
    })
}

/// Returns the number of turns of each side: `BENCH_ROUNDS`, or the default.
pub fn rounds(default: usize) -> usize {
    variable("BENCH_ROUNDS", default).max(1)
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
    Cost::of(spent, cpu)
}

/// Returns the median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn median_of(turns: &[Cost]) -> Cost {
    let of = |value: fn(&Cost) -> f64| median(turns.iter().map(value).collect());
    Cost { p50: of(|turn| turn.p50), p99: of(|turn| turn.p99), cpu: of(|turn| turn.cpu) }
}

/// Returns the CPU time of this process, in seconds, with a resolution of 0.01.
pub fn process_cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The process name, in parentheses, may contain spaces.
    let ticks = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Returns the number of bytes that this process caused to be written to disks so far.
pub fn bytes_written() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap().parse().unwrap()
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
            ratio: all(|(a, b)| Cost { p50: a.p50 / b.p50, p99: a.p99 / b.p99, cpu: a.cpu / b.cpu }),
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

    /// Returns the line of a comparison of 99th percentiles.
    pub fn p99(name: impl Into<String>, compared: Compared, goal: Goal) -> Self {
        Self {
            name: name.into(),
            sides: (micros(compared.a.p99), micros(compared.b.p99)),
            value: compared.ratio.p99,
            cpu: None,
            goal,
        }
    }

    /// Returns the line of a quantity, whose unit the name has.
    pub fn value(name: impl Into<String>, value: f64, goal: Goal) -> Self {
        Self { name: name.into(), sides: Default::default(), value, cpu: None, goal }
    }

    /// Returns the column headers.
    pub fn header() -> String {
        format!(
            "{:76} {:>12} {:>12} {:>8} {:>8}  {:>6} {:>6}  verdict",
            "figure", "A", "B", "value", "cpu", "must", "aim"
        )
    }
}

fn micros(micros: f64) -> String {
    if micros < 10.0 { format!("{micros:.3} us") } else { format!("{micros:.1} us") }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Too few operations take less than the clock's resolution.
        let cpu = self.cpu.filter(|cpu| cpu.is_normal()).map(|cpu| format!("{cpu:.2}")).unwrap_or_default();
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
        let value = format!("{:.2}", self.value);
        if env::var_os("BENCH_TSV").is_some() {
            return f.write_str(&[&*self.name, a, b, &value, &cpu, &must, &aim, verdict].join("\t"));
        }
        write!(f, "{:76} {a:>12} {b:>12} {value:>8} {cpu:>8}  {must:>6} {aim:>6}  {verdict}", self.name)
    }
}

fn verdict(must: bool, aim: bool) -> &'static str {
    match (must, aim) {
        (true, true) => "aim reached",
        (true, false) => "met",
        (false, _) => "MISSED",
    }
}
