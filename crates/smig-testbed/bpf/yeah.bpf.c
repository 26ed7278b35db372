/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* YeAH-TCP: Baiocchi, Castellani, Vacirca, "YeAH-TCP: Yet Another Highspeed TCP", PFLDnet 2007. As long as its own packets make no
 * queue it grows like Scalable TCP; with a queue like Reno, and drains it before it overflows. */
#include "kernel.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* Q_max: packets in the queue, at most; the paper's alpha. */
#define MAX_QUEUE 80
/* 1 / phi: the queueing delay, at most, as a part of the base round trip. */
#define PHI 8
/* Scalable TCP grows by 1 / this for each acknowledged packet, so by as much of the window in a round trip. */
#define SCALABLE_DIVISOR 100
/* Round trips of Reno's growth after which others are there: then a loss halves the window. */
#define RHO 16
/* Without others a loss takes at least 1 / 2^this of the window. */
#define MIN_DECREASE_SHIFT 3
/* Draining takes at most 1 / 2^this of the window. */
#define MAX_DRAIN_SHIFT 1
/* Round trips without a queue after which the estimate of a competing Reno's window begins anew. */
#define ZETA 50
#define NO_RTT 0x7fffffff

struct yeah {
	/* The shortest round trip of all, and of this round. */
	u32 base_rtt_us;
	u32 min_rtt_us;
	u32 rtt_samples;
	/* The round ends when this is acknowledged. */
	u32 round_end;
	/* Own packets in the queue at the last round's end. */
	u32 queue;
	/* Estimate of the window that a competing Reno has. */
	u32 reno_window;
	/* Rounds in a row with a queue, and without. */
	u32 slow_rounds;
	u32 fast_rounds;
};

static inline void begin_round(struct sock *sk)
{
	struct yeah *state = congestion_state(sk);

	state->round_end = tcp_sk(sk)->snd_nxt;
	state->min_rtt_us = NO_RTT;
	state->rtt_samples = 0;
}

SEC("struct_ops/yeah_init")
void BPF_PROG(yeah_init, struct sock *sk)
{
	struct yeah *state = congestion_state(sk);

	state->base_rtt_us = NO_RTT;
	state->queue = 0;
	state->reno_window = 2;
	state->slow_rounds = 0;
	state->fast_rounds = 0;
	begin_round(sk);
}

SEC("struct_ops/yeah_pkts_acked")
void BPF_PROG(yeah_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct yeah *state = congestion_state(sk);
	__s32 rtt_us = sample->rtt_us;

	if (rtt_us < 0)
		return;
	state->base_rtt_us = min_u32(state->base_rtt_us, max_u32(rtt_us, 1));
	state->min_rtt_us = min_u32(state->min_rtt_us, max_u32(rtt_us, 1));
	state->rtt_samples++;
}

/* Ends a round: measures the queue, and drains it if it is long. */
static inline void end_round(struct sock *sk)
{
	struct yeah *state = congestion_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	/* Of one or two samples the shortest may be one of a delayed acknowledgement. */
	if (state->rtt_samples > 2) {
		u32 window = tp->snd_cwnd, rtt = state->min_rtt_us;
		u32 queueing = rtt - state->base_rtt_us;
		u32 queue = (u64)window * queueing / max_u32(rtt, 1);

		if (queue > MAX_QUEUE || queueing > state->base_rtt_us / PHI) {
			if (queue > MAX_QUEUE && window > state->reno_window) {
				u32 drained = min_u32(queue, window >> MAX_DRAIN_SHIFT);

				window = max_u32(window - drained, state->reno_window);
				tp->snd_cwnd = max_u32(window, 2);
				tp->snd_ssthresh = tp->snd_cwnd;
			}
			if (state->reno_window <= 2)
				state->reno_window = max_u32(window >> 1, 2);
			else
				state->reno_window++;
			state->slow_rounds = min_u32(state->slow_rounds + 1, 1 << 20);
			state->fast_rounds = 0;
		} else {
			if (++state->fast_rounds > ZETA) {
				state->reno_window = 2;
				state->fast_rounds = 0;
			}
			state->slow_rounds = 0;
		}
		state->queue = queue;
	}
	begin_round(sk);
}

SEC("struct_ops/yeah_cong_avoid")
void BPF_PROG(yeah_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct yeah *state = congestion_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	/* While the application limits sending, the window says nothing of a queue. */
	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp))
		tcp_slow_start(tp, acked);
	else if (state->slow_rounds == 0)
		tcp_cong_avoid_ai(tp, min_u32(tp->snd_cwnd, SCALABLE_DIVISOR), acked);
	else
		tcp_cong_avoid_ai(tp, tp->snd_cwnd, acked);
	if (is_after(ack, state->round_end))
		end_round(sk);
}

SEC("struct_ops/yeah_ssthresh")
u32 BPF_PROG(yeah_ssthresh, struct sock *sk)
{
	struct yeah *state = congestion_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 window = tp->snd_cwnd, decrease = window >> 1;

	/* Without others, what is in the queue is enough. */
	if (state->slow_rounds < RHO)
		decrease = min_u32(max_u32(state->queue, window >> MIN_DECREASE_SHIFT), window >> 1);
	state->fast_rounds = 0;
	state->reno_window = max_u32(state->reno_window >> 1, 2);
	return max_u32(window - decrease, 2);
}

SEC("struct_ops/yeah_undo_cwnd")
u32 BPF_PROG(yeah_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	return max_u32(tp->snd_cwnd, tp->prior_cwnd);
}

SEC(".struct_ops")
struct tcp_congestion_ops yeah = {
	.init = (void *)yeah_init,
	.pkts_acked = (void *)yeah_pkts_acked,
	.cong_avoid = (void *)yeah_cong_avoid,
	.ssthresh = (void *)yeah_ssthresh,
	.undo_cwnd = (void *)yeah_undo_cwnd,
	.name = "yeah",
};
