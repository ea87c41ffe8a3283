/* What PyTorch computes in several steps, in one pass over memory: parts of attention, dropout, and
   of decoding; and products of float32 for decoding, with weights laid out once.

   Rows of scores are (N, Q, K), N = B * H, and contiguous. Built once for float and, with -DBF16,
   once for bfloat16; sums and functions are computed in float. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef BF16
typedef uint16_t number;
static inline float wide(number x) {
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static inline number narrow(float f) { /* to the nearest, ties to even; NaN stays NaN */
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return (number)((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 16) | 0x40 : rounded);
}
#else
typedef float number;
static inline float wide(number x) { return x; }
static inline number narrow(float f) { return f; }
#endif

/* Vectors as the processor has them; ROWS x WIDE of them fit into its registers. LANES divides 16. */
#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 8, WIDE = 3 };
#elif defined(__AVX__)
enum { LANES = 8, ROWS = 4, WIDE = 3 };
#else
enum { LANES = 4, ROWS = 4, WIDE = 3 };
#endif
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2)));

static inline vector load(const number *x) {
#ifdef BF16
    return (vector)(__builtin_convertvector(*(const halves *)x, words) << 16);
#else
    return *(const vector *)x;
#endif
}
static inline void store(number *x, vector y) {
#ifdef BF16
    words bits = (words)y, nan = (words)(y != y);
    words rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    rounded = (rounded & ~nan) | (((bits >> 16) | 0x40) & nan);
    *(halves *)x = __builtin_convertvector(rounded, halves);
#else
    *(vector *)x = y;
#endif
}
/* x, with 0 in the lanes before `first`. */
static inline vector lanes_from(vector x, long first) {
    static const uint32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (vector)((words)x & (words)(*(const words *)numbers >= (uint32_t)first));
}
static inline float sum_of(vector x) {
    float parts[LANES];
    memcpy(parts, &x, sizeof(parts));
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return parts[0];
}

/* e^x for x <= 0, to 2 units in the last place; e^-inf = 0; NaN stays NaN. */
static inline float exponential(float x) {
    float bounded = x < -87.0f ? -87.0f : x;
    float n = floorf(bounded * 1.44269504f + 0.5f);
    float f = bounded - n * 0.693359375f + n * 2.12194440e-4f; /* |f| <= ln(2) / 2 */
    float p = 1.98756915e-4f;
    p = p * f + 1.39819994e-3f;
    p = p * f + 8.33345190e-3f;
    p = p * f + 4.16657962e-2f;
    p = p * f + 1.66666655e-1f;
    p = p * f + 5.00000012e-1f;
    p = p * f * f + f + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23; /* 2^n */
    float power;
    memcpy(&power, &bits, 4);
    return x < -87.0f ? 0.0f : p * power;
}

/* Softmax over the keys, then dropout.

   scores    (N, Q, K), not changed
   mask      added to the scores, or null; element (b, h, i, j) is at b * steps[0] + h * steps[1]
             + i * steps[2] + j
   draws     uniform 16-bit integers (N, Q, K): a number is kept from `threshold` on; or null
   out       probabilities after dropout
   saved     with draws: probabilities before dropout, with a minus where dropped */
void softmax_forward(const number *restrict scores, const number *restrict mask, const long *steps,
                     const int16_t *restrict draws, long threshold, float scale,
                     number *restrict out, number *restrict saved, long N, long H, long Q, long K,
                     long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long r = 0; r < N * Q; r++) {
        long n = r / Q, i = r % Q;
        float row[K];
        const number *restrict s = scores + r * K;
        number *restrict o = out + r * K;
        float largest = -INFINITY, sum = 0.0f;
        if (mask) {
            const number *restrict m = mask + n / H * steps[0] + n % H * steps[1] + i * steps[2];
            for (long j = 0; j < K; j++) row[j] = wide(s[j]) + wide(m[j]);
        } else {
            for (long j = 0; j < K; j++) row[j] = wide(s[j]);
        }
#pragma omp simd reduction(max : largest)
        for (long j = 0; j < K; j++) largest = row[j] > largest ? row[j] : largest;
#pragma omp simd reduction(+ : sum)
        for (long j = 0; j < K; j++) {
            row[j] = exponential(row[j] - largest); /* all NaN if all are -inf, as in PyTorch */
            sum += row[j];
        }
        float inverse = 1.0f / sum;
        if (draws) {
            const int16_t *restrict d = draws + r * K;
            number *restrict p = saved + r * K;
            for (long j = 0; j < K; j++) {
                float probability = row[j] * inverse;
                int kept = d[j] >= threshold;
                p[j] = narrow(kept ? probability : -probability);
                o[j] = narrow(kept ? probability * scale : 0.0f);
            }
        } else {
            for (long j = 0; j < K; j++) o[j] = narrow(row[j] * inverse);
        }
    }
}

/* The gradient of the scores: p * (g - sum(p * g)), where g is `grad` scaled, zero where dropped.

   saved   probabilities, with a minus where dropped */
void softmax_backward(const number *restrict grad, const number *restrict saved, float scale,
                      number *restrict out, long N, long Q, long K, long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long r = 0; r < N * Q; r++) {
        float row[K];
        const number *restrict g = grad + r * K, *restrict p = saved + r * K;
        number *restrict o = out + r * K;
        float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
        for (long j = 0; j < K; j++) {
            float probability = wide(p[j]);
            row[j] = probability < 0.0f ? 0.0f : wide(g[j]) * scale;
            dot += fabsf(probability) * row[j];
        }
        for (long j = 0; j < K; j++) o[j] = narrow(fabsf(wide(p[j])) * (row[j] - dot));
    }
}

/* Dropout of `count` numbers: those whose draw is at least `threshold` are kept, and scaled. `kept`
   has a bit for each: of 512 numbers, bit p of byte j belongs to number 64 * p + j. */
enum { BYTES = 64, GROUP = 8 * BYTES };

void dropout_forward(const number *restrict x, const int16_t *restrict draws, long threshold,
                     float scale, number *restrict out, uint8_t *restrict kept, long count,
                     long threads) {
    const int16_t first = (int16_t)threshold;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long begin = 0; begin < count; begin += GROUP) {
        uint8_t bits[BYTES] = {0};
        for (int plane = 0; plane < 8; plane++) {
            long at = begin + plane * BYTES, left = count - at;
            int lanes = left > BYTES ? BYTES : left > 0 ? (int)left : 0;
#pragma omp simd
            for (int j = 0; j < lanes; j++) {
                bits[j] |= (uint8_t)(draws[at + j] >= first) << plane;
                out[at + j] = narrow(draws[at + j] >= first ? wide(x[at + j]) * scale : 0.0f);
            }
        }
        memcpy(kept + begin / 8, bits, BYTES);
    }
}

void dropout_backward(const number *restrict grad, const uint8_t *restrict kept, float scale,
                      number *restrict out, long count, long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long begin = 0; begin < count; begin += GROUP) {
        const uint8_t *restrict bits = kept + begin / 8;
        for (int plane = 0; plane < 8; plane++) {
            long at = begin + plane * BYTES, left = count - at;
            int lanes = left > BYTES ? BYTES : left > 0 ? (int)left : 0;
#pragma omp simd
            for (int j = 0; j < lanes; j++)
                out[at + j] = narrow(bits[j] >> plane & 1 ? wide(grad[at + j]) * scale : 0.0f);
        }
    }
}

/* Pairs (N, Q, K) and rows (N, Q, R) of numbers by distance. Row c of query i belongs to key
   j = i + shift + c; with `repeat`, the last one to all keys further right as well. */

static inline void columns(long i, long shift, long R, long K, long *first, long *last) {
    long begin = i + shift, end = begin + R;
    *first = begin < 0 ? 0 : begin > K ? K : begin;
    *last = end < *first ? *first : end > K ? K : end;
}

/* x[j] += more[j] */
static inline void add_numbers(number *x, const number *more, long count) {
    if (count < LANES) {
        for (long j = 0; j < count; j++) x[j] = narrow(wide(x[j]) + wide(more[j]));
        return;
    }
    const long end = count - LANES; /* the last vector overlaps the one before it */
    const vector last = load(x + end) + load(more + end);
    for (long j = 0; j < end; j += LANES) store(x + j, load(x + j) + load(more + j));
    store(x + end, last);
}

/* Add to each pair the number of its row, in place. */
void add_rows(number *restrict pairs, const number *restrict rows, long N, long Q, long K, long R,
              long shift, long repeat, long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long r = 0; r < N * Q; r++) {
        long first, last, i = r % Q, j = K;
        columns(i, shift, R, K, &first, &last);
        number *pair = pairs + r * K;
        const number *row = rows + r * R;
        add_numbers(pair + first, row + first - i - shift, last - first);
        if (!repeat || last == K) continue;
        const vector repeated = (vector){0} + wide(row[R - 1]);
        for (; j - LANES >= last; j -= LANES) store(pair + j - LANES, load(pair + j - LANES) + repeated);
        if (j >= LANES && j > last) {
            number *x = pair + j - LANES;
            store(x, load(x) + lanes_from(repeated, last - j + LANES));
        } else
            for (; j > last; j--) pair[j - 1] = narrow(wide(pair[j - 1]) + repeated[0]);
    }
}

/* Sum the pairs of each row: the transpose of `add_rows`. */
void collect_rows(const number *restrict pairs, number *restrict rows, long N, long Q, long K,
                  long R, long shift, long repeat, long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long r = 0; r < N * Q; r++) {
        long first, last, i = r % Q, j = K;
        columns(i, shift, R, K, &first, &last);
        const number *pair = pairs + r * K;
        number *row = rows + r * R;
        memset(row, 0, R * sizeof(number));
        if (first < last) add_numbers(row + first - i - shift, pair + first, last - first);
        if (!repeat || last == K) continue;
        vector sums = {0};
        for (; j - LANES >= last; j -= LANES) sums += load(pair + j - LANES);
        if (j >= LANES) {
            sums += lanes_from(load(pair + j - LANES), last - j + LANES);
            j = last;
        }
        float sum = wide(row[R - 1]) + sum_of(sums);
        for (; j > last; j--) sum += wide(pair[j - 1]);
        row[R - 1] = narrow(sum);
    }
}

/* out (E) = softmax(scale * x k^T + mask) v of one query and one head, E = V vectors; the j-th key of
   row rows[j * N] is at row * steps[0] + j * steps[2], the value at row * steps[3] + j * steps[5]. */
static inline __attribute__((always_inline)) void attend_one(
    const number *restrict x, const number *restrict k, const number *restrict v, const long *steps,
    const int32_t *restrict rows, long n, const number *restrict mask, float scale,
    number *restrict out, long N, long K, const long V) {
    const long blocks = (K + LANES - 1) / LANES;
    vector query[V], sums[V];
    float probs[blocks * LANES], largest = -INFINITY, total = 0.0f;
    for (long e = 0; e < V; e++) query[e] = load(x + e * LANES) * scale, sums[e] = (vector){0};
    for (long j = 0; j < K; j++) {
        const number *key = k + (rows ? rows[j * N] : n) * steps[0] + j * steps[2];
        vector products = query[0] * load(key);
        for (long e = 1; e < V; e++) products += query[e] * load(key + e * LANES);
        probs[j] = sum_of(products) + (mask ? wide(mask[j]) : 0.0f);
        largest = probs[j] > largest ? probs[j] : largest;
    }
    for (long j = K; j < blocks * LANES; j++) probs[j] = -INFINITY;
    for (float *p = probs; p < probs + blocks * LANES; p += LANES) {
        for (int i = 0; i < LANES; i++) p[i] = exponential(p[i] - largest);
        total += sum_of(*(vector *)p);
    }
    for (long j = 0; j < K; j++) {
        const number *value = v + (rows ? rows[j * N] : n) * steps[3] + j * steps[5];
        for (long e = 0; e < V; e++) sums[e] += probs[j] * load(value + e * LANES);
    }
    for (long e = 0; e < V; e++) {
        sums[e] /= total;
        for (int i = 0; i < LANES; i++) out[e * LANES + i] = narrow(sums[e][i]);
    }
}

/* Attention of few queries: out (N, Q, H, E) for queries (N, H, Q, E).

   steps   of the queries: 3, over n, h, i; of the keys and of the values: 3 each, over n, h, j;
           their numbers (E) are neighbours
   rows    (K, N): where in the keys and values row n finds its j-th; or null, where n is the row
   mask    (N, K) to add to the scores, or null */
void attend_few(const number *restrict q, const number *restrict k, const number *restrict v,
                const long *steps, const int32_t *restrict rows, const number *restrict mask,
                float scale, number *restrict out, long N, long H, long Q, long K, long E,
                long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long r = 0; r < N * H * Q; r++) {
        long n = r / (H * Q), h = r / Q % H, i = r % Q;
        const number *x = q + n * steps[0] + h * steps[1] + i * steps[2];
        const number *keys = k + h * steps[4], *values = v + h * steps[7];
        const int32_t *from = rows ? rows + n : 0;
        const number *added = mask ? mask + n * K : 0;
        number *o = out + ((n * Q + i) * H + h) * E;
        if (E == 4 * LANES)
            attend_one(x, keys, values, steps + 3, from, n, added, scale, o, N, K, 4);
        else
            attend_one(x, keys, values, steps + 3, from, n, added, scale, o, N, K, E / LANES);
    }
}

/* The `count` most probable continuations of each of A sentences, best first; among equals, the
   earlier beam comes first, then the lower token.

   logits   (A, B, V): of B beams
   sums     (A, B): log-probabilities of the beams, to which those of the tokens are added
   forced   (A): the only token that may follow, or -1
   pad, bos tokens that never follow, but count in the softmax
   out      (A, count): sums, -inf where there are no more; columns: beam * V + token */
void best_continuations(const number *restrict logits, const float *restrict sums,
                        const int64_t *restrict forced, long pad, long bos, float *restrict out,
                        int64_t *restrict columns, long A, long B, long V, long count,
                        long threads) {
    enum { BLOCK = 64 };
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long a = 0; a < A; a++) {
        float *best = out + a * count;
        int64_t *where = columns + a * count;
        for (long c = 0; c < count; c++) best[c] = -INFINITY, where[c] = 0;
        for (long b = 0; b < B; b++) {
            float before = sums[a * B + b];
            if (before == -INFINITY) continue;
            const number *restrict x = logits + (a * B + b) * V;
            float largest = -INFINITY, total = 0.0f;
#pragma omp simd reduction(max : largest)
            for (long t = 0; t < V; t++) largest = wide(x[t]) > largest ? wide(x[t]) : largest;
#pragma omp simd reduction(+ : total)
            for (long t = 0; t < V; t++) total += exponential(wide(x[t]) - largest);
            float log_total = logf(total);
            long first = 0, last = V;
            if (forced[a] >= 0) first = forced[a], last = first + 1;
            for (long block = first; block < last; block += BLOCK) {
                long end = block + BLOCK < last ? block + BLOCK : last;
                float most = -INFINITY;
#pragma omp simd reduction(max : most)
                for (long t = block; t < end; t++) most = wide(x[t]) > most ? wide(x[t]) : most;
                if (!(before + (most - largest - log_total) > best[count - 1])) continue;
                for (long t = block; t < end; t++) {
                    float sum = before + (wide(x[t]) - largest - log_total);
                    if (!(sum > best[count - 1]) || t == pad || t == bos) continue;
                    long place = count - 1;
                    for (; place && sum > best[place - 1]; place--) {
                        best[place] = best[place - 1];
                        where[place] = where[place - 1];
                    }
                    best[place] = sum;
                    where[place] = b * V + t;
                }
            }
        }
    }
}

#ifndef BF16
/* out = x w^T + bias, with a weight in panels, for any number of rows.

   A panel holds WIDE vectors of outputs, input by input, so that it is read in one piece; ROWS rows
   times a panel are sums in registers. While one panel is used, the next is fetched, in equal
   parts: in decoding, weights come from beyond the caches of a core. */
enum { PANEL = WIDE * LANES, INPUTS = 16, LINE = 64 };

/* Columns of the panel that begins at output n: all, or as many vectors as N needs. */
static inline long width(long n, long N) {
    long vectors = (N - n + LANES - 1) / LANES;
    return (vectors < WIDE ? vectors : WIDE) * LANES;
}

/* weight (N, K) -> panels: K times N, rounded up to whole vectors with zeros. */
void lay_out_panels(const float *restrict weight, float *restrict panels, long N, long K,
                    long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long n = 0; n < N; n += PANEL) {
        long columns = width(n, N);
        for (long k = 0; k < K; k++)
            for (long c = 0; c < columns; c++)
                panels[n * K + k * columns + c] = n + c < N ? weight[(n + c) * K + k] : 0.0f;
    }
}

/* ROWS rows of x times a panel of `wide` vectors; `count` rows of `columns` sums are written. Each
   16 inputs, `lines` lines of memory from `next` on are fetched. */
static inline __attribute__((always_inline)) void multiply(
    const float *const *x, const float *restrict panel, const float *restrict bias, long relu,
    float *restrict out, long count, long columns, long N, long K, const char *next, long lines,
    const int wide) {
    vector sums[ROWS][WIDE];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < wide; c++) sums[r][c] = (vector){0};
    for (long k = 0; k < K; k++) {
        if (k % INPUTS == 0)
            for (long l = 0; l < lines; l++, next += LINE) __builtin_prefetch(next, 0, 2);
        const vector *weights = (const vector *)(panel + k * wide * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
            for (int c = 0; c < wide; c++) sums[r][c] += x[r][k] * weights[c];
    }
    for (long r = 0; r < count; r++) {
        const float *sum = (const float *)sums[r];
        for (long c = 0; c < columns; c++) {
            float y = sum[c] + bias[c];
            out[r * N + c] = relu && y < 0.0f ? 0.0f : y;
        }
    }
}

/* x (M, K), panels of a weight (N, K), bias (N) -> out (M, N), with the negative ones 0 if `relu`.
   A row's result does not depend on the other rows. */
void linear(const float *restrict x, const float *restrict panels, const float *restrict bias,
            long relu, float *restrict out, long M, long N, long K, long threads) {
    enum { PART = 512 }; /* rows that stay in the cache of a core */
    const long parts = (M + PART - 1) / PART, num_panels = (N + PANEL - 1) / PANEL;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long r = 0; r < parts * num_panels; r++) {
        long n = r % num_panels * PANEL, first = r / num_panels * PART;
        long last = M - first < PART ? M : first + PART;
        const float *panel = panels + n * K;
        long wide = width(n, N) / LANES, columns = N - n < PANEL ? N - n : PANEL;
        long num_blocks = (last - first + ROWS - 1) / ROWS;
        long lines = (INPUTS * PANEL * 4 / LINE + num_blocks - 1) / num_blocks;
        const char *next = (const char *)(panel + PANEL * K);
        for (long m = first; m < last; m += ROWS) {
            const float *rows[ROWS];
            long count = last - m < ROWS ? last - m : ROWS;
            for (long r = 0; r < ROWS; r++) rows[r] = x + (m + (r < count ? r : 0)) * K;
            float *o = out + m * N + n;
            if (wide == 3)
                multiply(rows, panel, bias + n, relu, o, count, columns, N, K, next, lines, 3);
            else if (wide == 2)
                multiply(rows, panel, bias + n, relu, o, count, columns, N, K, next, lines, 2);
            else
                multiply(rows, panel, bias + n, relu, o, count, columns, N, K, next, lines, 1);
            next += lines * LINE * (K / INPUTS);
        }
    }
}
#endif
