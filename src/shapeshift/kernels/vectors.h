/* Vectors of floats as the processor has them, and numbers in memory, which are floats or, with
   -DBF16, bfloat16: sums and functions are computed in float. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

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

/* Vectors as the processor has them; ROWS x WIDE of them fit into its registers. LANES divides 16,
   `LANES` of kernels/__init__.py. */
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define HAS_MASKS
enum { LANES = 16, ROWS = 8, WIDE = 3 };
#elif defined(__AVX__)
#include <immintrin.h>
enum { LANES = 8, ROWS = 5, WIDE = 2 };
#else
enum { LANES = 4, ROWS = 4, WIDE = 3 };
#endif
/* What functions that Python calls return: see `call` in library.py. */
enum { DONE = 0, NO_MEMORY = 1, NO_SUCH_INDEX = 2 };

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef int16_t shorts __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
#ifdef BF16
typedef halves numbers;
#else
typedef vector numbers;
#endif

/* `lanes`: a mask; `before`: its first `count` lanes; `bits_of`: as the bits of an integer, the first
   lane lowest; `lanes_of`: the inverse. */
#ifdef HAS_MASKS
typedef __mmask16 lanes;
static inline lanes before(long count) {
    return count >= LANES ? 0xFFFF : count < 0 ? 0 : (1u << count) - 1;
}
static inline lanes less(vector x, vector y) {
    return _mm512_cmp_ps_mask((__m512)x, (__m512)y, _CMP_LT_OQ);
}
static inline lanes is_nan(vector x) {
    return _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
}
static inline vector choose(lanes which, vector yes, vector no) {
    return (vector)_mm512_mask_blend_ps(which, (__m512)no, (__m512)yes);
}
static inline uint32_t bits_of(lanes which) { return which; }
static inline lanes lanes_of(uint32_t bits) { return (lanes)bits; }
#else
typedef integers lanes;
static inline lanes before(long count) {
    static const int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return *(const integers *)numbers < (int32_t)(count >= LANES ? LANES : count < 0 ? 0 : count);
}
static inline lanes less(vector x, vector y) { return x < y; }
static inline lanes is_nan(vector x) { return x != x; }
static inline vector choose(lanes which, vector yes, vector no) {
#ifdef __AVX__
    return (vector)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)which);
#else
    return (vector)(((words)yes & (words)which) | ((words)no & ~(words)which));
#endif
}
static inline uint32_t bits_of(lanes which) {
#ifdef __AVX__
    return _mm256_movemask_ps((__m256)which);
#else
    return (which[0] & 1) | (which[1] & 2) | (which[2] & 4) | (which[3] & 8);
#endif
}
static inline lanes lanes_of(uint32_t bits) {
    static const int32_t powers[16] = {1, 2, 4, 8, 16, 32, 64, 128};
    const integers own = *(const integers *)powers;
    return (own & (int32_t)bits) == own;
}
#endif
static inline vector all(float x) { return (vector){0} + x; }

/* y where it is larger than x, else x, which may be NaN. */
static inline vector larger(vector x, vector y) {
#ifdef HAS_MASKS
    return (vector)_mm512_max_ps((__m512)y, (__m512)x);
#elif defined(__AVX__)
    return (vector)_mm256_max_ps((__m256)y, (__m256)x);
#else
    return choose(less(x, y), y, x);
#endif
}

/* Keep a vector in a register; gcc would read it from memory again for each row. */
#if defined(__AVX__) && !defined(HAS_MASKS)
#define KEEP(x) __asm__("" : "+x"(x))
#else
#define KEEP(x) (void)(x)
#endif

/* 16 bits as 32; compilers make two halves of it. */
static inline words widened(halves x) {
#ifdef HAS_MASKS
    return (words)_mm512_cvtepu16_epi32((__m256i)x);
#else
    return __builtin_convertvector(x, words);
#endif
}
static inline vector floats(shorts x) {
#ifdef HAS_MASKS
    return (vector)_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32((__m256i)x));
#else
    return __builtin_convertvector(x, vector);
#endif
}

/* Write floats of some lanes. */
static inline void store_floats(float *x, vector y, lanes which) {
#ifdef HAS_MASKS
    _mm512_mask_storeu_ps(x, which, (__m512)y);
#elif defined(__AVX__)
    _mm256_maskstore_ps(x, (__m256i)which, (__m256)y);
#else
    for (int l = 0; l < LANES; l++)
        if (which[l]) x[l] = y[l];
#endif
}

/* The first `count` numbers, and 0 in other lanes; or a vector, which needs no mask. */
#ifdef HAS_MASKS
#define IS_WHOLE(count) 0
#else
#define IS_WHOLE(count) ((count) >= LANES)
#endif
static inline halves load_halves(const void *x, long count) {
#ifdef HAS_MASKS
    return (halves)_mm256_maskz_loadu_epi16(before(count), x);
#else
    if (IS_WHOLE(count)) return *(const halves *)x;
    halves y = {0};
    for (int l = 0; l < LANES; l++)
        if (l < count) y[l] = ((const uint16_t *)x)[l];
    return y;
#endif
}
static inline vector load_floats(const float *x, long count) {
#ifdef HAS_MASKS
    return (vector)_mm512_maskz_loadu_ps(before(count), x);
#else
    if (IS_WHOLE(count)) return *(const vector *)x;
#ifdef __AVX__
    return (vector)_mm256_maskload_ps(x, (__m256i)before(count));
#else
    vector y = {0};
    for (int l = 0; l < LANES; l++)
        if (l < count) y[l] = x[l];
    return y;
#endif
#endif
}
static inline vector load(const number *x, long count) {
#ifdef BF16
    return (vector)(widened(load_halves(x, count)) << 16);
#else
    return load_floats(x, count);
#endif
}
/* The first `count` numbers, and -inf in other lanes. */
static inline vector load_or_least(const number *x, long count) {
    if (count >= LANES) return load(x, LANES);
    return choose(before(count), load(x, count), all(-INFINITY));
}
static inline numbers narrowed(vector y) {
#if defined(BF16) && defined(HAS_MASKS) && defined(__AVX512BF16__)
    return (halves)_mm512_cvtneps_pbh((__m512)y);
#elif defined(BF16)
    words bits = (words)y; /* rounded as in `narrow` */
    words rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, nan = (bits >> 16) | 0x40;
    rounded = (words)choose(is_nan(y), (vector)nan, (vector)rounded);
    return __builtin_convertvector(rounded, halves);
#else
    return y;
#endif
}
static inline void store(number *x, vector y, long count) {
#ifndef BF16
    if (IS_WHOLE(count))
        *(vector *)x = y;
    else
        store_floats(x, y, before(count));
#elif defined(HAS_MASKS)
    _mm256_mask_storeu_epi16(x, before(count), (__m256i)narrowed(y));
#else
    const numbers z = narrowed(y);
    if (IS_WHOLE(count))
        *(numbers *)x = z;
    else
        for (int l = 0; l < LANES; l++)
            if (l < count) x[l] = z[l];
#endif
}

#if defined(__AVX__) && !defined(HAS_MASKS)
#define HALF(operation, x) \
    operation(_mm256_castps256_ps128((__m256)(x)), _mm256_extractf128_ps((__m256)(x), 1))
#endif
static inline float sum_of(vector x) {
#ifdef HAS_MASKS
    return _mm512_reduce_add_ps((__m512)x);
#elif defined(__AVX__)
    const __m128 half = HALF(_mm_add_ps, x), pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
#else
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}
static inline float largest_of(vector x) {
#ifdef HAS_MASKS
    return _mm512_reduce_max_ps((__m512)x);
#elif defined(__AVX__)
    const __m128 half = HALF(_mm_max_ps, x), pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
#else
    float largest = x[0];
    for (int i = 1; i < LANES; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
#endif
}

/* The largest of scores, or 0 if all are -inf, so that no difference to it is NaN. */
static inline float finite_peak(vector scores) {
    const float largest = largest_of(scores);
    return largest == -INFINITY ? 0.0f : largest;
}

/* e^x for x <= 0, to 2 units in the last place; e^-inf = 0; NaN stays NaN. */
static inline vector exponentials(vector x) {
    lanes is_zero = less(x, all(-87.0f));
    vector bounded = larger(x, all(-87.0f));
    vector shifted = bounded * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: its last bits are units */
    vector n = shifted - 12582912.0f;                     /* the nearest whole number */
    vector f = bounded - n * 0.693359375f + n * 2.12194440e-4f; /* |f| <= ln(2) / 2 */
    vector p = f * 1.98756915e-4f + 1.39819994e-3f;
    p = p * f + 8.33345190e-3f;
    p = p * f + 4.16657962e-2f;
    p = p * f + 1.66666655e-1f;
    p = p * f + 5.00000012e-1f;
    p = p * f * f + f + 1.0f;
    vector power = (vector)(((words)shifted + 127) << 23); /* 2^n */
    return choose(is_zero, all(0.0f), p * power);
}
/* Random words i of a seed, from `begin` on: SplitMix64 (Steele, Lea and Flood 2014). */
static inline void random_words(uint64_t *restrict words, uint64_t seed, long begin, long count) {
#pragma omp simd
    for (long i = 0; i < count; i++) {
        uint64_t z = seed + (uint64_t)(begin + i) * 0x9E3779B97F4A7C15;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
        z = (z ^ z >> 27) * 0x94D049BB133111EB;
        words[i] = z ^ z >> 31;
    }
}
static inline long vectors(long K) { return (K + LANES - 1) / LANES; }
