/* The loss and dropout, each in one pass over memory, where PyTorch takes several. */

#include "vectors.h"

#include <omp.h>

/* Of each row of logits (N, V): log_sums, log of the sum of e^x, and log_probs, that of its target.
   With `replace`, probabilities take the place of the logits, that of the target less `confidence`. */
long cross_entropy(number *restrict logits, const int64_t *restrict targets, float confidence,
                   long replace, float *restrict log_sums, float *restrict log_probs, long N,
                   long V, long threads) {
    for (long n = 0; n < N; n++)
        if (targets[n] < 0 || targets[n] >= V) return NO_SUCH_INDEX;
    const long width = vectors(V) * LANES;
    float *rows = malloc(4 * (size_t)(threads * width));
    if (!rows) return NO_MEMORY;
#pragma omp parallel num_threads(threads)
    {
        float *row = rows + omp_get_thread_num() * width;
#pragma omp for schedule(static)
        for (long n = 0; n < N; n++) {
            number *x = logits + n * V;
            vector most = all(-INFINITY), totals = all(0.0f);
            for (long t = 0; t < V; t += LANES) most = larger(most, load_or_least(x + t, V - t));
            const float largest = largest_of(most), picked = wide(x[targets[n]]);
            for (long t = 0; t < V; t += LANES) {
                vector y = exponentials(load_or_least(x + t, V - t) - largest);
                *(vector *)(row + t) = y;
                totals += y;
            }
            const float total = sum_of(totals), inverse = 1.0f / total;
            log_sums[n] = logf(total) + largest;
            log_probs[n] = picked - log_sums[n];
            if (!replace) continue;
            row[targets[n]] -= confidence * total;
            for (long t = 0; t < V; t += LANES)
                store(x + t, *(const vector *)(row + t) * inverse, V - t);
        }
    }
    free(rows);
    return DONE;
}

/* Dropout of `count` numbers x, or with `relu` of those and 0 in place of the negative ones: a number is
   kept, and scaled, if its draw, 16 bits of the random words, is at least `threshold`. The result is
   `out`, or with `residual` the sum of both, `total`. `kept` has a bit for each, the first in the lowest,
   in whole words. */
enum { GROUP = 512 };

long dropout(const number *restrict x, const float *restrict residual, long seed, long threshold,
             float scale, long relu, number *restrict out, float *restrict total,
             uint16_t *restrict kept, long count, long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long begin = 0; begin < count; begin += GROUP) {
        uint64_t words[GROUP / 4];
        random_words(words, seed, begin / 4, GROUP / 4);
        const int16_t *draws = (const int16_t *)words;
        const long end = count - begin < GROUP ? count : begin + GROUP;
        for (long i = begin; i < end; i += 16) {
            uint32_t bits = 0;
            for (long n = i; n < i + 16; n += LANES) {
                const vector y = load(x + n, end - n);
                const vector draw = floats(*(const shorts *)(draws + n - begin));
                lanes keep = ~less(draw, all(threshold));
                if (relu) keep &= less(all(0.0f), y) | is_nan(y);
                const vector dropped = choose(keep, y * scale, all(0.0f));
                if (residual)
                    store_floats(total + n, load_floats(residual + n, end - n) + dropped,
                                 before(end - n));
                else
                    store(out + n, dropped, end - n);
                bits |= bits_of(keep) << (n - i);
            }
            kept[i / 16] = (uint16_t)bits;
        }
    }
    return DONE;
}

/* The gradient of x, `out`, for that of the result, `grad` or `total`. */
long dropout_backward(number *restrict out, const number *restrict grad,
                      const float *restrict total, const uint16_t *restrict kept, float scale,
                      long count, long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long begin = 0; begin < count; begin += GROUP) {
        const long end = count - begin < GROUP ? count : begin + GROUP;
        for (long n = begin; n < end; n += LANES) {
            const vector y = total ? load_floats(total + n, end - n) : load(grad + n, end - n);
            const lanes keep = lanes_of(kept[n / 16] >> n % 16);
            store(out + n, choose(keep, y * scale, all(0.0f)), end - n);
        }
    }
    return DONE;
}
