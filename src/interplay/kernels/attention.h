// What attention over runs and of single new tokens share.
#pragma once

#include "common.h"

INLINE long round_up(long n) { return (n + LANES - 1) / LANES * LANES; }

// exp(score - peak) of the first `seen` of `width` scores, 0 for the others; their sum.
INLINE float weigh(float *scores, long seen, long width, float peak) {
    v16 sum = {0};
    const i16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (long j = 0; j < width; j += LANES) {
        v16 value = j < seen ? exponential(load(scores + j) - peak) : (v16){0};
        if (j + LANES > seen) value = (v16)((i16)value & (lane + (int32_t)j < (int32_t)seen));
        store(scores + j, value);
        sum = sum + value;
    }
    return lane_sum(sum);
}

INLINE float highest(const float *scores, long seen) {
    const i16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    v16 peak = splat(-INFINITY);
    long j = 0;
    for (; j + LANES <= seen; j += LANES) peak = larger(load(scores + j), peak);
    if (j < seen) {
        const i16 there = lane + (int32_t)j < (int32_t)seen;
        peak = larger((v16)(((i16)load(scores + j) & there) | ((i16)splat(-INFINITY) & ~there)), peak);
    }
    return lane_max(peak);
}
