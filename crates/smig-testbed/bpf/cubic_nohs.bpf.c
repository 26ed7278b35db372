/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The kernel's CUBIC without HyStart, under a name of its own, so that both can run at the same time: the machine's setting is left
 * alone. */
#include "kernel.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bictcp {
	/* HyStart has found its exit from slow start. */
	u8 found;
};

#pragma clang attribute pop

extern void cubictcp_init(struct sock *sk) __ksym;
extern u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym;
extern void cubictcp_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern void cubictcp_state(struct sock *sk, u8 new_state) __ksym;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

SEC("struct_ops/cubic_nohs_init")
void BPF_PROG(cubic_nohs_init, struct sock *sk)
{
	cubictcp_init(sk);
}

SEC("struct_ops/cubic_nohs_acked")
void BPF_PROG(cubic_nohs_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct bictcp *state = congestion_state(sk);

	/* HyStart looks no further once it has found an exit. */
	state->found = 1;
	cubictcp_acked(sk, sample);
}

SEC("struct_ops/cubic_nohs_cong_avoid")
void BPF_PROG(cubic_nohs_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	cubictcp_cong_avoid(sk, ack, acked);
}

SEC("struct_ops/cubic_nohs_ssthresh")
u32 BPF_PROG(cubic_nohs_ssthresh, struct sock *sk)
{
	return cubictcp_recalc_ssthresh(sk);
}

SEC("struct_ops/cubic_nohs_set_state")
void BPF_PROG(cubic_nohs_set_state, struct sock *sk, u8 new_state)
{
	cubictcp_state(sk, new_state);
}

SEC("struct_ops/cubic_nohs_cwnd_event")
void BPF_PROG(cubic_nohs_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	cubictcp_cwnd_event(sk, event);
}

SEC("struct_ops/cubic_nohs_undo_cwnd")
u32 BPF_PROG(cubic_nohs_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops cubic_nohs = {
	.init = (void *)cubic_nohs_init,
	.pkts_acked = (void *)cubic_nohs_acked,
	.cong_avoid = (void *)cubic_nohs_cong_avoid,
	.ssthresh = (void *)cubic_nohs_ssthresh,
	.set_state = (void *)cubic_nohs_set_state,
	.cwnd_event = (void *)cubic_nohs_cwnd_event,
	.undo_cwnd = (void *)cubic_nohs_undo_cwnd,
	.name = "cubic_nohs",
};
