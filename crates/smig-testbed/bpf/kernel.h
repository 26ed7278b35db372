/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the congestion controls here use of Linux. Offsets are relocated when a program is loaded (CO-RE), so only names and types
 * must be those of the running kernel. */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

typedef __u8 u8;
typedef __u32 u32;
typedef __u64 u64;

#define CA_PRIV_BYTES 104
#define TCP_INFINITE_SSTHRESH 0x7fffffff

/* The values that matter here. */
enum tcp_ca_event { CA_EVENT_TX_START, CA_EVENT_CWND_RESTART };
enum { TCP_CA_Open, TCP_CA_Disorder, TCP_CA_CWR, TCP_CA_Recovery, TCP_CA_Loss };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Complete, since functions of the kernel that take one are declared below. */
struct sock {
	unsigned long sk_pacing_rate;
};

struct inet_connection_sock {
	u64 icsk_ca_priv[CA_PRIV_BYTES / sizeof(u64)];
};

struct tcp_sock {
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 snd_nxt;
	u32 snd_una;
	u32 prior_cwnd;
	u32 max_packets_out;
	u8 is_cwnd_limited : 1;
};

struct ack_sample {
	u32 pkts_acked;
	__s32 rtt_us;
	u32 in_flight;
};

struct tcp_congestion_ops {
	char name[16];
	u32 flags;
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
};

#pragma clang attribute pop

extern u32 tcp_slow_start(struct tcp_sock *tp, u32 acked) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked) __ksym;

static inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static inline void *congestion_state(struct sock *sk)
{
	return (void *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static inline int in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* Whether the window is what limits sending, as the kernel decides it: only then it may grow. */
static inline int is_cwnd_limited(const struct tcp_sock *tp)
{
	/* Only this macro relocates which bit of its byte it is. */
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* Whether a comes after b, both sequence numbers. */
static inline int is_after(u32 a, u32 b)
{
	return (__s32)(b - a) < 0;
}

static inline u32 max_u32(u32 a, u32 b)
{
	return a > b ? a : b;
}

static inline u32 min_u32(u32 a, u32 b)
{
	return a < b ? a : b;
}
