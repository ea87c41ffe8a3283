/* Attention of whole sentences, forward and backward: scores, softmax, dropout and outputs of 32
   queries of one head at a time, in the cache of a core; with vectors by distance (Shaw et al. 2018)
   that are added to keys and values. */

#include "products.h"

#include <omp.h>

const char sources[] = SOURCES; /* a hash of all sources: setup.py */

/* The sentences of a batch, and where their numbers are: token i of head h of sentence b is the row
   at first[b] * batch + h * head + i * row. */
struct layout {
    long batch, head, row;
};
struct rows {
    long count, shift;
};
/* Pairs of channels that rotate, of token i of sentence b by the complex numbers from
   b * batch + i * pairs on: channels 2 m and 2 m + 1, or with `halves` m and m + pairs. */
struct turns {
    const float *cosines, *sines;
    long pairs, halves, batch;
};
struct batch { /* Python fills it as an array of longs: each member has that size */
    long count, heads, dim, causal, most_queries, most_keys;
    const long *q_first, *q_count, *k_first, *k_count, *pairs; /* pairs: of sentences before */
    struct layout q, k, v, out, q_grad, k_grad, v_grad, bias, mask;
    /* Vectors by distance, (tables, R, E), or null; there is one table, or one for each head. */
    const float *keys, *values;
    long tables;
    struct rows keys_by, values_by;
    struct turns q_by, k_by;
    long stopped; /* set by Python while a call runs: what is left is skipped */
};
/* Whether Python has stopped a call. */
static inline int is_stopped(const struct batch *batch) {
    return *(const volatile long *)&batch->stopped != 0;
}

static inline long offset(struct layout l, const long *first, long b, long h) {
    return first[b] * l.batch + h * l.head;
}
static inline long least(long a, long b) { return a < b ? a : b; }

/* Rows of a table by distance: query i and key j have row j - i - shift, clipped to the first and the
   last. With tiles, the first and the last row are repeated MARGIN times, so that the rows of a vector
   of keys are consecutive, unless all of them are clipped to one; elsewhere larger products would cost
   more than masks do. */
#ifdef TILES
enum { MARGIN = LANES - 1 };
#else
enum { MARGIN = 0 };
#endif
/* Queries in one product for the gradients of tables, of several heads that share one (0: of one head),
   and for the gradients of keys and values. */
#ifdef PAIRS
enum { GROUP = 256, SOME = 256 };
#else
enum { GROUP = 0, SOME = 32 };
#endif
static inline long widened_by_margins(long count) { return count ? count + 2 * MARGIN : 0; }
static inline long row_in_margins(long row, long count) {
    return row < MARGIN ? 0 : row < MARGIN + count ? row - MARGIN : count - 1;
}

/* Lanes of a vector of keys whose first has row c: those with the first row of the table, those with the
   last, and the others, which have row c + lane. */
struct ends {
    lanes first, own, last;
};
static inline struct ends ends_at(long c, long count) {
    lanes first = before(1 - c), own = before(count - 1 - c) & ~first;
    return (struct ends){first, own, ~(first | own)};
}

/* The numbers of a vector of keys whose first has row c. */
static inline vector spread(const float *rows, long c, long count) {
    const float *first = rows + MARGIN, *last = first + count - 1;
    if (c >= count - 1) return all(*last);
    if (c <= 1 - LANES) return all(*first);
    const vector own = *(const vector *)(first + c);
    if (MARGIN || (c > 0 && c < count - LANES)) return own;
    const struct ends where = ends_at(c, count);
    return choose(where.last, all(*last), choose(where.first, all(*first), own));
}
/* The transpose: add a vector of keys to the sums by row, which are zero at first. Those of the first and
   last rows are added up in `first` and `last`; `collect_ends` writes them, after all `used` keys of a
   query, whose first key has row c. */
static inline void collect(vector x, part *rows, long c, long count, vector *first, vector *last) {
    if (c >= count - 1) {
        *last += x;
    } else if (c <= 1 - LANES) {
        *first += x;
    } else if (MARGIN || (c > 0 && c < count - LANES)) {
        store_part(rows + MARGIN + c, x);
    } else {
        const struct ends where = ends_at(c, count);
        store_parts(rows + c, x, where.own);
        *first += choose(where.first, x, all(0.0f));
        *last += choose(where.last, x, all(0.0f));
    }
}
static inline void collect_ends(part *rows, long c, long used, long count, vector first,
                                vector last) {
    if (!MARGIN && count == 1) {
        rows[0] = part_of(sum_of(first + last));
        return;
    }
    const long highest = c + (MARGIN ? (used - 1) / LANES * LANES : used - 1);
    if (c <= -MARGIN) rows[0] = part_of(sum_of(first));
    if (highest >= count - 1) rows[count + 2 * MARGIN - 1] = part_of(sum_of(last));
}

static inline vector as_number(vector x) {
#ifdef BF16
    return (vector)(widened(narrowed(x)) << 16);
#else
    return x;
#endif
}

static struct operand table_of(part *space, long h, long rows, long columns) {
    return operand_of(space + h * size_of(rows, columns), rows, columns);
}
static part *new_tables(struct memory *memory, long count, long rows, long columns) {
    return take(memory, count * size_of(rows, columns) * sizeof(part));
}
/* Lay out tables (count, E) of floats with their margins, and their transposes, for products; either
   may be null. `space` has room for one. */
static void lay_out_tables(part *plain, part *transposed, number *space, const float *tables,
                           struct rows by, long count, long E) {
    const long rows = widened_by_margins(by.count);
#pragma omp for schedule(static)
    for (long n = 0; n < count; n++) {
        for (long i = 0; i < rows; i++)
            for (long e = 0; e < E; e++)
                space[i * E + e] =
                    narrow(tables[(n * by.count + row_in_margins(i, by.count)) * E + e]);
        if (plain) lay_out(table_of(plain, n, rows, E), space, E, 0, rows, E);
        if (transposed) lay_out_transposed(transposed + n * size_of(E, rows), space, E, 0, rows, E);
    }
}

/* Add a^T b to sums (rows, E), for `count` rows of both. */
static void add_to_table(float *sums, struct transposed a, struct operand b, long rows,
                         long count) {
    product_transposed(sums, b.columns, a, 0, 0, b, rows, b.columns, count, 1);
}
/* Add sums, in rows as wide as products write them, to the gradient of a table. */
static void add_margins(float *grad, const float *sums, long rows, long E, float scale) {
    for (long i = 0; i < widened_by_margins(rows); i++)
        for (long e = 0; e < E; e++)
            grad[row_in_margins(i, rows) * E + e] += sums[i * rounded(E) + e] * scale;
}

INLINE void rotate_pairs(float *x, const float *cosines, const float *sines, long pairs,
                         const long step, long apart, const float direction) {
#pragma omp simd
    for (long m = 0; m < pairs; m++) {
        const float a = x[m * step], b = x[m * step + apart], sine = sines[m] * direction;
        x[m * step] = a * cosines[m] - b * sine;
        x[m * step + apart] = a * sine + b * cosines[m];
    }
}
/* Rotate a row, or with direction -1 the gradient for it. */
static inline void rotate(float *x, struct turns by, long b, long i, const float direction) {
    const float *cosines = by.cosines + b * by.batch + i * by.pairs;
    const float *sines = by.sines + b * by.batch + i * by.pairs;
    if (by.halves)
        rotate_pairs(x, cosines, sines, by.pairs, 1, by.pairs, direction);
    else
        rotate_pairs(x, cosines, sines, by.pairs, 2, 1, direction);
}

/* Rows of queries or keys of one head, and how far those of the next head are ahead. */
struct side {
    const number *x;
    long step, ahead;
};
/* The rows as they are, or a rotated copy in `space`. */
static struct side rotated(number *restrict space, struct side from, struct turns by, long b,
                           long rows, long E) {
    if (!by.pairs) return from;
    float row[rounded(E)] __attribute__((aligned(64)));
    for (long i = 0; i < rows; i++) {
        const number *x = from.x + i * from.step;
        prefetch(x + from.ahead, E);
        for (long c = 0; c < E; c += LANES) *(vector *)(row + c) = load(x + c, E - c);
        rotate(row, by, b, i, 1.0f);
        for (long c = 0; c < E; c += LANES)
            store(space + i * E + c, *(const vector *)(row + c), E - c);
    }
    return (struct side){space, E, 0};
}
/* Rotate float rows of gradients back, (rows, E) of a block from token `begin` on. */
static void rotate_back(float *x, long step, struct turns by, long b, long begin, long rows) {
    for (long i = 0; by.pairs && i < rows; i++) rotate(x + i * step, by, b, begin + i, -1.0f);
}

/* One attention, the same for all threads: its inputs, and sizes as products need them.

   bias, mask   added to the scores, or null
   seed         of uniform 16-bit integers, four in a random word, one for each query and key: a
                probability is kept if its integer is at least `threshold`
   wide, most   E and the most keys, rounded up
   step         from row to row of scores: a power of 2 would leave the cache
   R, S         rows of the tables of keys and of values, with their margins */
struct call {
    struct batch s;
    const number *q, *k, *v, *bias, *mask;
    long seed, threshold;
    float dropout_scale, scale;
    long wide, most, step, R, S;
};
static struct call call_of(const struct batch *s, const number *q, const number *k, const number *v,
                           const number *bias, const number *mask, long seed, long threshold,
                           float dropout_scale) {
    struct call c = {*s, q, k, v, bias, mask, seed, threshold, dropout_scale};
    c.scale = 1.0f / sqrtf(s->dim);
    c.wide = rounded(s->dim), c.most = rounded(s->most_keys), c.step = c.most + EDGE;
    c.R = widened_by_margins(s->keys_by.count), c.S = widened_by_margins(s->values_by.count);
    return c;
}

/* One head of one sentence, number r: its n queries and m keys, and the number of pairs before. */
struct head {
    long r, b, h, n, m, first;
    struct side queries, keys;
};
static struct side side_of(const struct call *c, const number *x, struct layout l,
                           const long *first, long r) {
    const long H = c->s.heads, last = c->s.count * H - 1, next = r < last ? r + 1 : r;
    const long from = offset(l, first, r / H, r % H);
    return (struct side){x + from, l.row, offset(l, first, next / H, next % H) - from};
}
static struct head head_of(const struct call *c, long r, number *q_space, number *k_space) {
    const struct batch *s = &c->s;
    const long b = r / s->heads, h = r % s->heads, n = s->q_count[b], m = s->k_count[b];
    struct head head = {r, b, h, n, m, s->pairs[b] + h * n * m};
    head.queries = rotated(q_space, side_of(c, c->q, s->q, s->q_first, r), s->q_by, b, n, s->dim);
    head.keys = rotated(k_space, side_of(c, c->k, s->k, s->k_first, r), s->k_by, b, m, s->dim);
    return head;
}
/* Row i of queries or of keys in a result. */
static inline number *row_in(number *x, struct layout l, const long *first, const struct head *head,
                             long i) {
    return x + offset(l, first, head->b, head->h) + i * l.row;
}
static inline void prefetch_rows(const number *x, long step, long rows, long E) {
    for (long i = 0; i < rows; i++) prefetch(x + i * step, E);
}
/* How many of the keys the queries before `end` see. */
static inline long seen_before(const struct call *c, const struct head *head, long end) {
    return c->s.causal && end < head->n ? end + head->m - head->n : head->m;
}
/* Row `i` of the scores of K keys, of which `used` are computed and `seen` are those that it sees. */
struct query {
    long i, K, used, seen;
};
static inline struct query query_of(const struct call *c, const struct head *head, long i,
                                    long used) {
    return (struct query){i, head->m, used, seen_before(c, head, i + 1)};
}

/* Scores of a block of queries, and its products with the table of keys by distance. */
struct block {
    part *queries;
    float *scores, *by_row;
    uint64_t *words;
    struct operand keys, table;
};
static struct block new_block(struct memory *memory, const struct call *c) {
    return (struct block){take(memory, BLOCK * c->wide * sizeof(part)),
                          take(memory, BLOCK * c->step * sizeof(float)),
                          take(memory, BLOCK * rounded(c->R) * sizeof(float)),
                          take(memory, c->step * sizeof(uint64_t) / 4)};
}
static void score(const struct call *c, const struct head *head, const struct block *to, long begin,
                  long rows, long used) {
    const struct side from = head->queries;
    const long E = c->s.dim;
    copy_block(to->queries, from.x + begin * from.step, from.step, from.ahead, rows, E);
    product(to->scores, c->step, to->queries, c->wide, to->keys, rows, used, E, 0);
    product(to->by_row, rounded(c->R), to->queries, c->wide, to->table, rows, c->R, E, 0);
}
/* Scores of row i of a block -> probabilities, in place, negated where dropped; zeros if all scores
   are -inf. */
INLINE void softmax(const struct call *c, const struct head *head, const struct block *in, long i,
                    struct query at, number *saved) {
    const struct layout b = c->s.bias, m = c->s.mask;
    const number *bias =
        c->bias ? c->bias + head->b * b.batch + head->h * b.head + at.i * b.row : 0;
    const number *mask =
        c->mask ? c->mask + head->b * m.batch + head->h * m.head + at.i * m.row : 0;
    const struct rows keys = c->s.keys_by;
    const float scale = c->scale, *by_row = in->by_row + i * rounded(c->R);
    const long pair = head->first + at.i * at.K, threshold = c->threshold;
    const int16_t *draws = threshold > INT16_MIN ? (const int16_t *)in->words + pair % 4 : 0;
    if (draws) random_words(in->words, c->seed, pair / 4, (pair % 4 + at.used + 3) / 4);
    float *scores = in->scores + i * c->step;
    vector high = all(-INFINITY), totals = all(0.0f);
    for (long j = 0; j < at.used; j += LANES) {
        vector x = *(vector *)(scores + j);
        if (keys.count) x += spread(by_row, j - at.i - keys.shift, keys.count);
        x *= scale;
        if (bias) x += load(bias + j, at.K - j);
        if (mask) x += load(mask + j, at.K - j);
        x = choose(before(at.seen - j), x, all(-INFINITY));
        high = larger(high, x);
        *(vector *)(scores + j) = x;
    }
    const float largest = finite_peak(high);
    for (long j = 0; j < at.used; j += LANES) {
        vector x = exponentials(*(vector *)(scores + j) - largest);
        totals += x;
        *(vector *)(scores + j) = x;
    }
    const float total = sum_of(totals), inverse = total == 0.0f ? 0.0f : 1.0f / total;
    for (long j = 0; j < at.used; j += LANES) {
        vector x = as_number(*(vector *)(scores + j) * inverse);
        if (draws) {
            shorts draw = *(const shorts *)(draws + j);
            x = choose(less(floats(draw), all(threshold)), -x, x);
        }
        *(vector *)(scores + j) = x;
        if (saved) store(saved + j, x, at.K - j);
    }
    for (long j = at.used; saved && j < at.K; j += LANES) store(saved + j, all(0.0f), at.K - j);
}

/* A vector of probabilities from key j on, just computed (`kept`), or else saved. */
static inline vector probability(const float *kept, const number *saved, long j, long K) {
    return kept ? *(const vector *)(kept + j) : load(saved + j, K - j);
}

/* Probabilities after dropout, and their sums by row. */
static inline void drop(const struct call *c, part *probs, struct query at, const float *kept,
                        const number *saved, part *sums) {
    const float scale = c->dropout_scale;
    const struct rows values = c->s.values_by;
    vector first = all(0.0f), last = all(0.0f);
    for (long j = 0; j < at.used; j += LANES) {
        vector x = probability(kept, saved, j, at.K);
        x = larger(x, all(0.0f)) * scale;
        store_part(probs + j, x);
        if (values.count) collect(x, sums, j - at.i - values.shift, values.count, &first, &last);
    }
    if (values.count) collect_ends(sums, -at.i - values.shift, at.used, values.count, first, last);
}

/* Gradients of the scores of a row, and their sums by row. `grads` and `by_row`, the parts of values and
   of their table, are the gradients of the probabilities. */
static inline void softmax_gradient(const struct call *c, part *changes, struct query at,
                                    float *grads, const float *by_row, const float *kept,
                                    const number *saved, part *sums, number *bias_grads,
                                    float *bias_sums) {
    const float scale = c->dropout_scale;
    const struct rows keys = c->s.keys_by, values = c->s.values_by;
    vector dots = all(0.0f), first = all(0.0f), last = all(0.0f);
    for (long j = 0; j < at.used; j += LANES) {
        vector p = probability(kept, saved, j, at.K), x = *(vector *)(grads + j);
        if (values.count) x += spread(by_row, j - at.i - values.shift, values.count);
        lanes dropped = less(p, all(0.0f));
        x = choose(dropped, all(0.0f), x * scale);
        dots += p * x;
        *(vector *)(grads + j) = x;
    }
    const float dot = sum_of(dots);
    for (long j = 0; j < at.used; j += LANES) {
        vector p = probability(kept, saved, j, at.K);
        p = larger(p, -p);
        vector x = p * (*(vector *)(grads + j) - dot);
        store_part(changes + j, x);
        if (bias_grads) store(bias_grads + j, x, at.K - j);
        if (bias_sums) *(vector *)(bias_sums + j) += x;
        if (keys.count) collect(x, sums, j - at.i - keys.shift, keys.count, &first, &last);
    }
    if (keys.count) collect_ends(sums, -at.i - keys.shift, at.used, keys.count, first, last);
    for (long j = at.used; bias_grads && j < at.K; j += LANES)
        store(bias_grads + j, all(0.0f), at.K - j);
}

/* Zeros from `used` on, up to where products read. */
static inline void pad(part *row, long used) {
    for (long j = (used + LANES - 1) / LANES * LANES; j < rounded(used); j += LANES)
        store_part(row + j, all(0.0f));
}
/* Write float rows (rows, E) of a block, scaled, as numbers. */
static void write_rows(number *to, long step, const float *from, long from_step, long rows, long E,
                       float scale) {
    for (long i = 0; i < rows; i++)
        for (long e = 0; e < E; e += LANES)
            store(to + i * step + e, *(const vector *)(from + i * from_step + e) * scale, E - e);
}

/* What a thread works in; `keys`, `values` and their tables are laid out for a head.

   changes, probs            of `some` queries of a sentence: gradients of scores, and probabilities
   key_changes, value_probs  of `room` queries: sums of these by row of the tables
   queries, grads            of `room` queries, whose next one is `row`; `own` are those of a head
   key_sums, value_sums      gradients of the keys and values of a head, before they are written
   table_keys, table_values  gradients of the tables */
struct worker {
    part *key_space, *value_space;
    float *heads;
    number *rotated_queries, *rotated_keys, *table;
    struct block block;
    struct operand keys, values, key_table, value_table;
    /* forward */
    part *dropped, *sums;
    /* backward */
    part *transposed_space, *block_grads;
    float *products, *by_row, *key_sums, *value_sums, *table_keys, *table_values;
    long some, room, longest, row;
    struct transposed changes, probs, key_changes, value_probs;
    struct operand queries, grads, own_queries, own_grads;
};
static struct worker new_worker(struct memory *memory, const struct call *c, int has_scores) {
    const long E = c->s.dim;
    struct worker w = {0};
    w.key_space = take(memory, c->most * c->wide * sizeof(part));
    w.value_space = take(memory, c->most * c->wide * sizeof(part));
    w.heads = take(memory, BLOCK * c->wide * sizeof(float));
    w.rotated_queries = take(memory, c->s.most_queries * E * sizeof(number));
    w.rotated_keys = take(memory, c->most * E * sizeof(number));
    w.table = take(memory, (c->R > c->S ? c->R : c->S) * E * sizeof(number));
    if (has_scores) w.block = new_block(memory, c);
    return w;
}
/* The outputs of a block of queries. */
static void attend_block(const struct call *c, const struct head *head, const struct worker *w,
                         long begin, number *out, number *saved) {
    const struct batch *s = &c->s;
    const long rows = least(head->n - begin, BLOCK), used = seen_before(c, head, begin + rows);
    number *to = row_in(out, s->out, s->q_first, head, begin);
    prefetch_rows(to, s->out.row, rows, s->dim);
    score(c, head, &w->block, begin, rows, used);
    memset(w->sums, 0, BLOCK * rounded(c->S) * sizeof(part));
    for (long i = 0; i < rows; i++) {
        const struct query at = query_of(c, head, begin + i, used);
        number *kept = saved ? saved + head->first + at.i * head->m : 0;
        softmax(c, head, &w->block, i, at, kept);
        drop(c, w->dropped + i * c->step, at, w->block.scores + i * c->step, 0,
             w->sums + i * rounded(c->S));
        pad(w->dropped + i * c->step, used);
    }
    const struct factors both[] = {{w->dropped, c->step, w->values, used},
                                   {w->sums, rounded(c->S), w->value_table, c->S}};
    product_of(w->heads, c->wide, both, 2, rows, s->dim, 0);
    write_rows(to, s->out.row, w->heads, c->wide, rows, s->dim, 1.0f);
}

/* Attention of whole sentences.

   saved   probabilities before dropout, negated where dropped, written for `attention_backward`; or
           null */
long attention_forward(const number *q, const number *k, const number *v, const struct batch *batch,
                       const number *bias, const number *mask, long seed, long threshold,
                       float dropout_scale, number *saved, number *out, long threads) {
    const struct call c = call_of(batch, q, k, v, bias, mask, seed, threshold, dropout_scale);
    const struct batch *s = &c.s;
    const long E = s->dim;
    struct memory shared = {0};
    part *key_tables = new_tables(&shared, s->tables, E, c.R);
    part *value_tables = new_tables(&shared, s->tables, c.S, E);
    int lacking = shared.lacks;
#pragma omp parallel num_threads(threads)
    {
        struct memory memory = {0};
        struct worker w = new_worker(&memory, &c, 1);
        w.dropped = take(&memory, BLOCK * c.step * sizeof(part));
        w.sums = take(&memory, BLOCK * rounded(c.S) * sizeof(part));
        if (!any_lacks(&lacking, memory.lacks)) {
            const setting earlier = begin_tiles();
            lay_out_tables(0, key_tables, w.table, s->keys, s->keys_by, s->tables, E);
            lay_out_tables(value_tables, 0, w.table, s->values, s->values_by, s->tables, E);
#pragma omp for schedule(static)
            for (long r = 0; r < s->count * s->heads; r++) {
                if (is_stopped(batch)) continue;
                const struct head head = head_of(&c, r, w.rotated_queries, w.rotated_keys);
                const struct side keys = head.keys, values = side_of(&c, v, s->v, s->k_first, r);
                w.values = lay_out(operand_of(w.value_space, head.m, E), values.x, values.step,
                                   values.ahead, head.m, E);
                w.value_table = table_of(value_tables, head.h % s->tables, c.S, E);
                w.block.keys =
                    lay_out_transposed(w.key_space, keys.x, keys.step, keys.ahead, head.m, E);
                w.block.table = table_of(key_tables, head.h % s->tables, E, c.R);
                for (long begin = 0; begin < head.n && !is_stopped(batch); begin += BLOCK)
                    attend_block(&c, &head, &w, begin, out, saved);
            }
            end_tiles(earlier);
        }
        free_all(&memory);
    }
    free_all(&shared);
    return lacking ? NO_MEMORY : DONE;
}

/* What the backward pass reads and writes beside the inputs: `attention_backward`. */
struct gradients {
    const number *out, *saved;
    number *q, *k, *v, *bias;
    float *bias_sums, *keys, *values;
};
static struct worker new_backward(struct memory *memory, const struct call *c, int recompute) {
    const struct batch *s = &c->s;
    const long E = s->dim, wide = c->wide, most = c->most, R = c->R, S = c->S;
    struct worker w = new_worker(memory, c, recompute);
    w.longest = rounded(s->most_queries), w.some = least(w.longest, SOME);
    w.room = R + S && s->tables == 1 && w.longest < GROUP ? GROUP : w.longest;
    w.transposed_space = recompute ? take(memory, most * wide * sizeof(part)) : 0;
    w.block_grads = take(memory, BLOCK * wide * sizeof(part));
    w.products = take(memory, BLOCK * c->step * sizeof(float));
    w.by_row = take(memory, BLOCK * rounded(S) * sizeof(float));
    w.key_sums = take(memory, most * wide * sizeof(float));
    w.value_sums = take(memory, most * wide * sizeof(float));
    w.table_keys = take_zeros(memory, s->tables * size_of(R, E) * sizeof(float));
    w.table_values = take_zeros(memory, s->tables * size_of(S, E) * sizeof(float));
    w.changes = new_transposed(memory, c->step, w.some);
    w.probs = new_transposed(memory, c->step, w.some);
    w.key_changes = new_transposed(memory, rounded(R), w.room);
    w.value_probs = new_transposed(memory, rounded(S), w.room);
    w.queries = operand_of(take(memory, w.room * wide * sizeof(part)), w.room, E);
    w.grads = operand_of(take(memory, w.room * wide * sizeof(part)), w.room, E);
    return w;
}
/* Lay out what products with a head need. */
static void begin_head(const struct call *c, const struct head *head, const struct gradients *g,
                       struct worker *w) {
    const struct batch *s = &c->s;
    const long E = s->dim, n = head->n, m = head->m;
    const struct side q = head->queries, k = head->keys;
    const struct side v = side_of(c, c->v, s->v, s->k_first, head->r);
    const struct side out = side_of(c, g->out, s->out, s->q_first, head->r);
    w->keys = lay_out(operand_of(w->key_space, m, E), k.x, k.step, k.ahead, m, E);
    w->values = lay_out_transposed(w->value_space, v.x, v.step, v.ahead, m, E);
    w->own_queries = lay_out(panel(w->queries, w->row, 0), q.x, q.step, q.ahead, n, E);
    w->own_grads = lay_out(panel(w->grads, w->row, 0), out.x, out.step, out.ahead, n, E);
    if (!g->saved) w->block.keys = lay_out_transposed(w->transposed_space, k.x, k.step, 0, m, E);
    shorten(&w->changes, least(n, w->some));
    shorten(&w->probs, least(n, w->some));
}
/* Probabilities of a block of queries, gradients of its scores, and the sums of both by row. */
static void gradients_of_scores(const struct call *c, const struct head *head,
                                const struct gradients *g, struct worker *w, long begin, long rows,
                                long used) {
    const struct batch *s = &c->s;
    const long E = s->dim, wide = c->wide, R = rounded(c->R), S = rounded(c->S);
    const long place = begin % SOME, row = w->row + begin, by_distance = s->bias.row < 0;
    const long thread = omp_get_thread_num() * s->heads + head->h;
    const long summed = thread * (by_distance ? s->bias.head : s->most_queries * c->most);
    if (!g->saved) score(c, head, &w->block, begin, rows, used);
    const number *grads = g->out + offset(s->out, s->q_first, head->b, head->h);
    copy_block(w->block_grads, grads + begin * s->out.row, s->out.row, 0, rows, E);
    product(w->products, c->step, w->block_grads, wide, w->values, rows, used, E, 0);
    product(w->by_row, S, w->block_grads, wide, w->value_table, rows, c->S, E, 0);
    memset(row_of(w->key_changes, row, 0), 0, BLOCK * R * sizeof(part));
    memset(row_of(w->value_probs, row, 0), 0, BLOCK * S * sizeof(part));
    for (long i = 0; i < rows; i++) {
        const struct query at = query_of(c, head, begin + i, used);
        const float *made = g->saved ? 0 : w->block.scores + i * c->step;
        const number *kept = g->saved ? g->saved + head->first + at.i * head->m : 0;
        part *changes = row_of(w->changes, place, i), *probs = row_of(w->probs, place, i);
        const long pair = (head->r * s->most_queries + at.i) * s->most_keys;
        const long sums = summed + at.i * (by_distance ? -1 : c->most);
        if (!g->saved) softmax(c, head, &w->block, i, at, 0);
        drop(c, probs, at, made, kept, row_of(w->value_probs, row, i));
        softmax_gradient(c, changes, at, w->products + i * c->step, w->by_row + i * S, made, kept,
                         row_of(w->key_changes, row, i), g->bias ? g->bias + pair : 0,
                         g->bias_sums ? g->bias_sums + sums : 0);
        pad(changes, used);
        pad(probs, used);
    }
}
static void gradients_of_queries(const struct call *c, const struct head *head,
                                 const struct gradients *g, const struct worker *w, long begin,
                                 long rows, long used) {
    const struct batch *s = &c->s;
    const struct factors both[] = {
        {row_of(w->changes, begin % SOME, 0), c->step, w->keys, used},
        {row_of(w->key_changes, w->row + begin, 0), rounded(c->R), w->key_table, c->R}};
    product_of(w->heads, c->wide, both, 2, rows, s->dim, 0);
    rotate_back(w->heads, c->wide, s->q_by, head->b, begin, rows);
    write_rows(row_in(g->q, s->q_grad, s->q_first, head, begin), s->q_grad.row, w->heads, c->wide,
               rows, s->dim, c->scale);
}
/* Add what queries `start` to `end`, who see `used` keys, give to the gradients of keys and values;
   after the last ones, write these. */
static void gradients_of_keys(const struct call *c, const struct head *head,
                              const struct gradients *g, const struct worker *w, long start,
                              long end, long used) {
    const struct batch *s = &c->s;
    const long E = s->dim, wide = c->wide, is_last = end == head->n;
    const long before = start ? seen_before(c, head, start) : 0;
    const struct operand queries = panel(w->own_queries, start, 0);
    const struct operand grads = panel(w->own_grads, start, 0);
    for (long j = 0; j < used; j += BLOCK) {
        const long rows = least(head->m - j, BLOCK), hidden = j - (head->m - head->n) - start;
        const long masked = s->causal && hidden > 0 ? hidden / BLOCK * BLOCK : 0; /* all of them */
        float *k_rows = w->key_sums + j * wide, *v_rows = w->value_sums + j * wide;
        number *k_to = row_in(g->k, s->k_grad, s->k_first, head, j);
        number *v_to = row_in(g->v, s->v_grad, s->k_first, head, j);
        if (is_last) prefetch_rows(k_to, s->k_grad.row, rows, E);
        if (is_last) prefetch_rows(v_to, s->v_grad.row, rows, E);
        product_transposed(k_rows, wide, w->changes, j, masked, queries, rows, E, end - start,
                           j < before);
        product_transposed(v_rows, wide, w->probs, j, masked, grads, rows, E, end - start,
                           j < before);
        if (!is_last) continue;
        rotate_back(k_rows, wide, s->k_by, head->b, j, rows);
        write_rows(k_to, s->k_grad.row, k_rows, wide, rows, E, c->scale);
        write_rows(v_to, s->v_grad.row, v_rows, wide, rows, E, 1.0f);
    }
}
/* Add what the queries in `room` give to the gradients of a table. */
static void gradients_of_tables(const struct call *c, struct worker *w, long table) {
    const long E = c->s.dim, R = c->R, S = c->S, row = w->row;
    add_to_table(w->table_keys + table * size_of(R, E), w->key_changes, w->queries, R, row);
    add_to_table(w->table_values + table * size_of(S, E), w->value_probs, w->grads, S, row);
    w->row = 0;
}
static void gradients_of_head(const struct batch *batch, const struct call *c,
                              const struct head *head, const struct gradients *g,
                              struct worker *w) {
    const struct batch *s = &c->s;
    begin_head(c, head, g, w);
    for (long begin = 0; begin < head->n && !is_stopped(batch); begin += BLOCK) {
        const long rows = least(head->n - begin, BLOCK), end = begin + rows, place = begin % SOME;
        const long used = seen_before(c, head, end);
        prefetch_rows(row_in(g->q, s->q_grad, s->q_first, head, begin), s->q_grad.row, rows,
                      s->dim);
        gradients_of_scores(c, head, g, w, begin, rows, used);
        gradients_of_queries(c, head, g, w, begin, rows, used);
        transpose_rows(w->changes, place, rows, rounded(used));
        transpose_rows(w->probs, place, rows, rounded(used));
        transpose_rows(w->key_changes, w->row + begin, rows, c->R);
        transpose_rows(w->value_probs, w->row + begin, rows, c->S);
        if (end == head->n || place + BLOCK == SOME)
            gradients_of_keys(c, head, g, w, begin - place, end, used);
    }
    w->row += rounded(head->n);
    if (w->row + w->longest > w->room) gradients_of_tables(c, w, head->h % s->tables);
}

/* Gradients of queries, keys and values, of a bias and of tables; `grad` is the gradient of the
   result.

   saved         of `attention_forward`; if null, probabilities are computed again
   bias_grads    of a bias that each sentence has, (count, H, most_queries, most_keys), or null
   bias_sums     of a bias that sentences share, a part for each thread, to which gradients are
                 added: (threads, H, most_queries, most_keys rounded up), or of numbers by distance,
                 as the bias is, whose row of a query begins one number before that of the query
                 before; or null
   key_grads, value_grads   of the tables, a part for each thread */
long attention_backward(const number *q, const number *k, const number *v, const number *grad,
                        const struct batch *batch, const number *bias, const number *mask,
                        long seed, long threshold, float dropout_scale, const number *saved,
                        number *q_grad, number *k_grad, number *v_grad, number *bias_grads,
                        float *bias_sums, float *key_grads, float *value_grads, long threads) {
    const struct call c = call_of(batch, q, k, v, bias, mask, seed, threshold, dropout_scale);
    const struct gradients g = {grad,       saved,     q_grad,    k_grad,     v_grad,
                                bias_grads, bias_sums, key_grads, value_grads};
    const struct batch *s = &c.s;
    const long E = s->dim, recompute = !saved;
    struct memory shared = {0};
    part *key_tables = new_tables(&shared, s->tables, c.R, E);
    part *value_tables = new_tables(&shared, s->tables, E, c.S);
    part *transposed = recompute ? new_tables(&shared, s->tables, E, c.R) : 0;
    int lacking = shared.lacks;
#pragma omp parallel num_threads(threads)
    {
        struct memory memory = {0};
        struct worker w = new_backward(&memory, &c, recompute);
        if (!any_lacks(&lacking, memory.lacks)) {
            const setting earlier = begin_tiles();
            lay_out_tables(key_tables, transposed, w.table, s->keys, s->keys_by, s->tables, E);
            lay_out_tables(0, value_tables, w.table, s->values, s->values_by, s->tables, E);
#pragma omp for schedule(static)
            for (long r = 0; r < s->count * s->heads; r++) {
                if (is_stopped(batch)) continue;
                const struct head head = head_of(&c, r, w.rotated_queries, w.rotated_keys);
                const long table = head.h % s->tables;
                w.key_table = table_of(key_tables, table, c.R, E);
                w.value_table = table_of(value_tables, table, E, c.S);
                if (recompute) w.block.table = table_of(transposed, table, E, c.R);
                gradients_of_head(batch, &c, &head, &g, &w);
            }
            gradients_of_tables(&c, &w, 0); /* of a group of heads that share one */
            end_tiles(earlier);
            const long own = omp_get_thread_num() * s->tables;
            for (long n = 0; n < s->tables; n++) {
                add_margins(key_grads + (own + n) * s->keys_by.count * E,
                            w.table_keys + n * size_of(c.R, E), s->keys_by.count, E, c.scale);
                add_margins(value_grads + (own + n) * s->values_by.count * E,
                            w.table_values + n * size_of(c.S, E), s->values_by.count, E, 1.0f);
            }
        }
        free_all(&memory);
    }
    free_all(&shared);
    return lacking ? NO_MEMORY : DONE;
}
