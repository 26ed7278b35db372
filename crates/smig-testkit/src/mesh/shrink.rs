//! Shrinks a failing sequence to a minimal one that still fails, and prints it as source.

use crate::mesh::op::Op;
use crate::mesh::plan::{BodyPlan, ExchangeKind, Plan};
use crate::mesh::run::{replay, trace};
use crate::mesh::setup::Setup;

/// A sequence that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the sequence.
    pub seed: u64,
    /// Its initial conditions.
    pub setup: Setup,
    /// Its steps, a minimal list that still fails.
    pub ops: Vec<Op>,
    /// The violation that the checks found.
    pub violation: String,
}

/// Removes and simplifies steps while the sequence still fails.
pub(crate) fn shrink(seed: u64, setup: Setup, ops: Vec<Op>) -> Failure {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut failure = Failure { seed, setup, ops, violation: String::new() };
    failure.remove_steps();
    failure.simplify_steps();
    failure.simplify_setup();
    failure.remove_steps();
    failure.violation = replay(failure.setup, &failure.ops).err().unwrap_or_default();
    std::panic::set_hook(hook);
    failure
}

impl Failure {
    fn remove_steps(&mut self) {
        let mut size = self.ops.len().div_ceil(2);
        while size > 0 {
            let (mut start, previous_len) = (0, self.ops.len());
            while start < self.ops.len() {
                let mut fewer = self.ops.clone();
                fewer.drain(start..(start + size).min(self.ops.len()));
                if replay(self.setup, &fewer).is_err() {
                    self.ops = fewer;
                } else {
                    start += size;
                }
            }
            if size > 1 || self.ops.len() == previous_len {
                size /= 2;
            }
        }
    }

    fn simplify_steps(&mut self) {
        for at in 0..self.ops.len() {
            for simpler in simpler_steps(self.ops[at]) {
                let mut ops = self.ops.clone();
                ops[at] = simpler;
                if simpler != self.ops[at] && replay(self.setup, &ops).is_err() {
                    self.ops = ops;
                    break;
                }
            }
        }
    }

    fn simplify_setup(&mut self) {
        for simplify in SETUP_SIMPLIFIERS {
            let setup = simplify(self.setup);
            if replay(setup, &self.ops).is_err() {
                self.setup = setup;
            }
        }
    }
}

/// Returns simpler steps, the simplest first.
fn simpler_steps(op: Op) -> Vec<Op> {
    match op {
        Op::Open { on, plan } => {
            let mut simpler: Vec<Op> = Vec::new();
            for plan in simpler_plans(plan) {
                simpler.extend([Op::Open { on: None, plan }, Op::Open { on, plan }]);
            }
            simpler
        }
        Op::Push { exchange, plan } => {
            // A push that announces a request body fails for another reason.
            let bodiless =
                |plan| Plan { kind: ExchangeKind::Get, up: BodyPlan::of_length(0), ..plan };
            let plans = simpler_plans(plan).into_iter().map(bodiless);
            plans.map(|plan| Op::Push { exchange, plan }).collect()
        }
        Op::Transmit { link, side, .. } => {
            vec![Op::Flush { link }, { Op::Transmit { link, side, bytes: 1 << 20 } }]
        }
        Op::Deliver { link, to, .. } => vec![Op::Deliver { link, to, bytes: 1 << 20 }],
        Op::Cut { link, .. } => vec![Op::Cut { link, delivered_permille: [0, 0] }],
        other => vec![other],
    }
}

fn simpler_plans(plan: Plan) -> Vec<Plan> {
    let short_body = |body: BodyPlan| BodyPlan { length: body.length.min(9), ..body };
    let short_heads = Plan { informational_count: 0, padding: 0, ..plan };
    vec![
        Plan::download(9),
        Plan::upload(9, 9),
        Plan { responds_at_once: false, ..Plan::download(9) },
        Plan { responds_at_once: false, ..Plan::upload(9, 9) },
        Plan::download(plan.down.length),
        Plan::upload(plan.up.length, plan.down.length),
        Plan {
            responds_at_once: plan.responds_at_once,
            ..Plan::upload(plan.up.length, plan.down.length)
        },
        Plan { up: short_body(plan.up), down: short_body(plan.down), ..short_heads },
        Plan { up: short_body(plan.up), ..short_heads },
        short_heads,
        plan,
    ]
}

/// Functions that each reset one parameter of the setup to its default.
const SETUP_SIMPLIFIERS: [fn(Setup) -> Setup; 18] = [
    |s| Setup { seed: 1, ..s },
    |s| Setup { security: Setup::default().security, ..s },
    |s| Setup { client_window: Setup::default().client_window, ..s },
    |s| Setup { server_window: Setup::default().server_window, ..s },
    |s| Setup { connection_window: Setup::default().connection_window, ..s },
    |s| Setup { send_buffer: Setup::default().send_buffer, ..s },
    |s| Setup { pipe_capacity: Setup::default().pipe_capacity, ..s },
    |s| Setup { client_max_open_migrations: Setup::default().client_max_open_migrations, ..s },
    |s| Setup { server_max_open_migrations: Setup::default().server_max_open_migrations, ..s },
    |s| Setup { max_frame_size: Setup::default().max_frame_size, ..s },
    |s| Setup { max_buffered_output: Setup::default().max_buffered_output, ..s },
    |s| Setup { client_max_migrations: Setup::default().client_max_migrations, ..s },
    |s| Setup { server_max_migrations: Setup::default().server_max_migrations, ..s },
    |s| Setup { replay_limit: Setup::default().replay_limit, ..s },
    |s| Setup { unbound_timeout_s: Setup::default().unbound_timeout_s, ..s },
    |s| Setup { max_streams: Setup::default().max_streams, ..s },
    |s| Setup { push: Setup::default().push, ..s },
    |s| Setup { bulk_min_size: Setup::default().bulk_min_size, ..s },
];

/// Returns a plan as source.
fn plan_source(plan: Plan) -> String {
    let base_and_source = if plan.kind == ExchangeKind::Get {
        (Plan::download(plan.down.length), format!("Plan::download({})", plan.down.length))
    } else {
        let (up, down) = (plan.up.length, plan.down.length);
        (Plan::upload(up, down), format!("Plan::upload({up}, {down})"))
    };
    let (base, mut text) = base_and_source;
    let mut changes = String::new();
    let mut field = |name: &str, is_same: bool, value: String| {
        if !is_same {
            changes += &format!("{name}: {value}, ");
        }
    };
    field("kind", plan.kind == base.kind, format!("ExchangeKind::{:?}", plan.kind));
    field("up", plan.up == base.up, format!("{:?}", plan.up));
    field("down", plan.down == base.down, format!("{:?}", plan.down));
    field(
        "informational_count",
        plan.informational_count == 0,
        plan.informational_count.to_string(),
    );
    field("padding", plan.padding == 0, plan.padding.to_string());
    field("responds_at_once", plan.responds_at_once, plan.responds_at_once.to_string());
    if !changes.is_empty() {
        text = format!("Plan {{ {changes}..{text} }}");
    }
    text
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "sequence {:#x} fails: {}", self.seed, self.violation)?;
        writeln!(f, "shortest sequence that fails:\nlet setup = {:?};\nlet ops = [", self.setup)?;
        for op in &self.ops {
            match *op {
                Op::Open { on, plan } => {
                    writeln!(f, "    Open {{ on: {on:?}, plan: {} }},", plan_source(plan))?;
                }
                Op::Push { exchange, plan } => {
                    writeln!(
                        f,
                        "    Push {{ exchange: {exchange}, plan: {} }},",
                        plan_source(plan)
                    )?;
                }
                op => writeln!(f, "    {op:?},")?,
            }
        }
        writeln!(f, "];\nframes:")?;
        for line in trace(self.setup, &self.ops) {
            writeln!(f, "    {line}")?;
        }
        write!(
            f,
            "to run it again: SMIG_SEED={:#x} SMIG_SEQUENCES=1 cargo test --profile sim \
             -p smig-testkit --test random",
            self.seed
        )
    }
}
