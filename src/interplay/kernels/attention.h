// What attention over runs and of single new tokens share.
#pragma once

#include "common.h"

INLINE long round_up(long n) { return (n + LANES - 1) / LANES * LANES; }

// All bits of the lanes from j on that come before `seen`.
INLINE ivec before(long j, long seen) {
    ivec lane;
    for (int i = 0; i < PART; i++) lane[i] = i;
    return lane + (int32_t)j < (int32_t)seen;
}

// exp(score - peak) of the first `seen` of `width` scores, 0 for the others; their sum.
INLINE float weigh(float *scores, long seen, long width, float peak) {
    Lanes sum = {0};
    for (long j = 0; j < width; j += LANES)
        for (int p = 0; p < PARTS; p++) {
            const long at = j + p * PART;
            vec value = at < seen ? exponential(load(scores + at) - peak) : (vec){0};
            if (at + PART > seen) value = (vec)((ivec)value & before(at, seen));
            store(scores + at, value);
            sum.part[p] = sum.part[p] + value;
        }
    return lane_sum(sum);
}

INLINE float highest(const float *scores, long seen) {
    vec peak = splat(-INFINITY);
    long j = 0;
    for (; j + PART <= seen; j += PART) peak = larger(load(scores + j), peak);
    if (j < seen) {
        const ivec there = before(j, seen);
        peak = larger((vec)(((ivec)load(scores + j) & there) | ((ivec)splat(-INFINITY) & ~there)), peak);
    }
    return lane_max(peak);
}
