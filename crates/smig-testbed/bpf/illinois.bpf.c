/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* TCP-Illinois: Liu, Basar, Srikant, "TCP-Illinois: A loss- and delay-based congestion control algorithm for high-speed networks",
 * Performance Evaluation 65 (2008). Losses decide when the window shrinks; the queueing delay decides by how much it grows (alpha)
 * and shrinks (beta). */
#include "kernel.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* Alpha in 1/128 segments a round trip, beta in 1/64 of the window; section 3.2 of the paper, table 1. */
#define ALPHA_ONE 128
#define ALPHA_MIN (3 * ALPHA_ONE / 10)
#define ALPHA_MAX (10 * ALPHA_ONE)
#define BETA_ONE 64
#define BETA_MIN (BETA_ONE / 8)
#define BETA_MAX (BETA_ONE / 2)
/* Below this window it is Reno. */
#define MIN_WINDOW 15
/* Round trips with a short queue after which alpha may be the largest again. */
#define THETA 5

struct illinois {
	u64 rtt_sum_us;
	u32 rtt_samples;
	u32 min_rtt_us;
	u32 max_rtt_us;
	/* The round ends when this is acknowledged. */
	u32 round_end;
	u32 alpha;
	u32 beta;
	u8 is_large_allowed;
	u8 short_rounds;
};

static inline void begin_round(struct sock *sk)
{
	struct illinois *state = congestion_state(sk);

	state->round_end = tcp_sk(sk)->snd_nxt;
	state->rtt_sum_us = 0;
	state->rtt_samples = 0;
}

SEC("struct_ops/illinois_init")
void BPF_PROG(illinois_init, struct sock *sk)
{
	struct illinois *state = congestion_state(sk);

	state->alpha = ALPHA_MAX;
	state->beta = BETA_MAX;
	state->min_rtt_us = 0x7fffffff;
	state->max_rtt_us = 0;
	state->is_large_allowed = 1;
	state->short_rounds = 0;
	begin_round(sk);
}

SEC("struct_ops/illinois_pkts_acked")
void BPF_PROG(illinois_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct illinois *state = congestion_state(sk);
	__s32 sampled = sample->rtt_us;
	u32 rtt_us;

	if (sampled < 0)
		return;
	/* What is longer says nothing of a queue. */
	rtt_us = min_u32(sampled, 1 << 30);
	state->min_rtt_us = min_u32(state->min_rtt_us, rtt_us);
	state->max_rtt_us = max_u32(state->max_rtt_us, rtt_us);
	state->rtt_sum_us += rtt_us;
	state->rtt_samples++;
}

/* Alpha as a function of the mean queueing delay da, where dm is the longest: equations 1 and 5. */
static inline u32 alpha_of(struct illinois *state, u32 da, u32 dm)
{
	u32 d1 = dm / 100;

	if (da <= d1) {
		if (state->is_large_allowed)
			return ALPHA_MAX;
		/* A queue that is short once may be chance. */
		if (++state->short_rounds < THETA)
			return state->alpha;
		state->short_rounds = 0;
		state->is_large_allowed = 1;
		return ALPHA_MAX;
	}
	state->is_large_allowed = 0;
	state->short_rounds = 0;
	/* kappa1 / (kappa2 + da), with both constants from alpha(d1) = the largest and alpha(dm) = the smallest. */
	dm -= d1;
	da -= d1;
	return (u64)dm * ALPHA_MAX / (dm + (u64)da * (ALPHA_MAX - ALPHA_MIN) / ALPHA_MIN);
}

/* Beta as a function of the same: equations 2 and 5. */
static inline u32 beta_of(u32 da, u32 dm)
{
	u32 d2 = dm / 10, d3 = 8 * d2;

	if (da <= d2)
		return BETA_MIN;
	if (da >= d3 || d3 <= d2)
		return BETA_MAX;
	return BETA_MIN + (u64)(BETA_MAX - BETA_MIN) * (da - d2) / (d3 - d2);
}

static inline void end_round(struct sock *sk)
{
	struct illinois *state = congestion_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 samples = state->rtt_samples;

	if (tp->snd_cwnd < MIN_WINDOW) {
		state->alpha = ALPHA_ONE;
		state->beta = BETA_MAX;
	} else if (samples > 0) {
		u32 mean = state->rtt_sum_us / samples;
		u32 dm = state->max_rtt_us - state->min_rtt_us;
		u32 da = mean > state->min_rtt_us ? mean - state->min_rtt_us : 0;

		state->alpha = alpha_of(state, da, dm);
		state->beta = beta_of(da, dm);
	}
	begin_round(sk);
}

SEC("struct_ops/illinois_cong_avoid")
void BPF_PROG(illinois_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct illinois *state = congestion_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 growth;

	if (is_after(ack, state->round_end))
		end_round(sk);
	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		tcp_slow_start(tp, acked);
		return;
	}
	/* alpha segments a window. */
	tp->snd_cwnd_cnt += acked;
	growth = (u64)tp->snd_cwnd_cnt * state->alpha / ALPHA_ONE;
	if (growth >= tp->snd_cwnd) {
		u32 segments = growth / max_u32(tp->snd_cwnd, 1);

		tp->snd_cwnd = min_u32(tp->snd_cwnd + segments, tp->snd_cwnd_clamp);
		tp->snd_cwnd_cnt = 0;
	}
}

SEC("struct_ops/illinois_ssthresh")
u32 BPF_PROG(illinois_ssthresh, struct sock *sk)
{
	struct illinois *state = congestion_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	return max_u32(tp->snd_cwnd - (u64)tp->snd_cwnd * state->beta / BETA_ONE, 2);
}

SEC("struct_ops/illinois_undo_cwnd")
u32 BPF_PROG(illinois_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	return max_u32(tp->snd_cwnd, tp->prior_cwnd);
}

/* After a timeout the path may be another one. */
SEC("struct_ops/illinois_set_state")
void BPF_PROG(illinois_set_state, struct sock *sk, u8 new_state)
{
	struct illinois *state = congestion_state(sk);

	if (new_state != TCP_CA_Loss)
		return;
	state->alpha = ALPHA_ONE;
	state->beta = BETA_MAX;
	state->is_large_allowed = 1;
	state->short_rounds = 0;
	begin_round(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops illinois = {
	.init = (void *)illinois_init,
	.pkts_acked = (void *)illinois_pkts_acked,
	.cong_avoid = (void *)illinois_cong_avoid,
	.ssthresh = (void *)illinois_ssthresh,
	.undo_cwnd = (void *)illinois_undo_cwnd,
	.set_state = (void *)illinois_set_state,
	.name = "illinois",
};
