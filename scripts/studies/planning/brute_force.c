/* Algorithms 1-4 of the TSO paper as plain loops: every TLE split, every TLT schedule, every T_R,
 * T_C and T_N, with the largest T_M that fits (GetFilters). Grouped convolutions are also tried
 * with whole groups a TLT, as the planners do.
 *
 * Two costs. exact_edges = 0: the paper's estimate, Equations 3-9. exact_edges = 1: what a machine
 * does, with ragged tiles at the edges, clipping at the borders of the IFM and uneven shares of
 * TLTs counted as they are.
 *
 * Times are in cycles. The only cleverness is what any such program has: loops end where a tile
 * stops to fit, and equal tiles along an axis are counted, not repeated.
 */
#include <stdint.h>

enum { IS, OS, WS };
enum { MOST_KINDS = 64, MOST_TLES = 16 };
enum { DONE, TOO_MANY_TLES, TOO_MANY_KINDS };

typedef struct {
    int64_t filters, channels, groups, rows, columns, in_rows, in_columns;
    int64_t kernel, stride_rows, stride_columns, span_rows, span_columns;
    int64_t padding_rows, padding_columns, element_bytes, residual, dense;
} Layer;

typedef struct {
    int64_t tles, tlts, mb0, mb1, mb2, bias, burst_bytes, macs_per_cycle;
    double setup, burst, linear_burst, bytes_per_cycle, dram_burst, dram_bytes_per_cycle;
    double efficiency, mac_setup, step;
} Machine;

typedef struct {
    double time;
    int64_t grouped, row_slices, filter_slices, schedule, tile_m, tile_n, tile_r, tile_c;
    int64_t candidates;
} Best;

/* ``linear`` of the bursts belong to 1-D transfers. */
typedef struct { int64_t transfers, bursts, linear, bytes; } Traffic;
typedef struct { int64_t extent, real, number; } Kind;
/* The tiles along an axis; ``number`` slices are cut just so. */
typedef struct { Kind kinds[MOST_KINDS]; int64_t count, tiles, number; } Axis;

/* What one TLE split makes of a layer: items are filters of one group, or whole groups. */
typedef struct {
    int64_t grouped, rows_each, items_each, item_filters, items, repeats, channels;
    int64_t row_slices, item_slices;
    Axis rows[MOST_TLES];
    int64_t row_kinds; /* of which there are */
} Slice;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }
static double smaller(double a, double b) { return a < b ? a : b; }

static void add(Traffic *sum, Traffic one, int64_t times) {
    sum->transfers += one.transfers * times;
    sum->bursts += one.bursts * times;
    sum->linear += one.linear * times;
    sum->bytes += one.bytes * times;
}

static Traffic transfer(int64_t segments, int64_t segment_bytes, int64_t burst_bytes) {
    Traffic one = {0, 0, 0, 0};
    if (segments > 0 && segment_bytes > 0) {
        one.transfers = 1;
        one.bursts = segments * ceil_div(segment_bytes, burst_bytes);
        one.bytes = segments * segment_bytes;
    }
    return one;
}

static Traffic linear_transfer(int64_t segments, int64_t segment_bytes, int64_t burst_bytes) {
    Traffic one = transfer(segments, segment_bytes, burst_bytes);
    one.linear = one.bursts;
    return one;
}

/* Algorithm 4, CalBurstCount of an IN or OUT tile: a run a row, or a run a channel at full width. */
static Traffic map_transfer(int flat, int64_t channels, int64_t rows, int64_t columns,
                            int64_t width, int64_t size, int64_t burst_bytes) {
    if (flat)
        return linear_transfer(1, channels * rows * columns * size, burst_bytes);
    if (columns == width)
        return transfer(channels, rows * columns * size, burst_bytes);
    return transfer(channels * rows, columns * size, burst_bytes);
}

static Traffic weight_transfer(const Layer *l, int64_t filters, int64_t channels, int64_t all,
                               int64_t burst_bytes) {
    int64_t filter_bytes = channels * l->kernel * l->element_bytes;
    if (channels == all)
        return linear_transfer(1, filters * filter_bytes, burst_bytes);
    return linear_transfer(filters, filter_bytes, burst_bytes);
}

static int flat_out(const Layer *l) { return l->rows * l->columns == 1; }

static int flat_in(const Layer *l) {
    return flat_out(l) && l->in_rows * l->in_columns * l->span_rows * l->span_columns == 1;
}

static double dram_cycles(Traffic t, const Machine *m) {
    return t.bursts * m->dram_burst + t.bytes / m->dram_bytes_per_cycle;
}

/* One engine's time while ``rivals`` engines, this one included, want the DRAM. */
static double engine_cycles(Traffic t, const Machine *m, double rivals) {
    double alone = t.transfers * m->setup + (t.bursts - t.linear) * m->burst + t.linear * m->linear_burst
                   + t.bytes / m->bytes_per_cycle;
    double shared = rivals * dram_cycles(t, m);
    return larger(alone, shared);
}

/* Equation 7, at the reachable share of the peak rate, and what a core does in a step. */
static double mac_cycles(const Layer *l, const Machine *m, int64_t filters, int64_t channels,
                         int64_t rows, int64_t columns) {
    int64_t units;
    if (l->dense)
        units = filters * ceil_div(channels, m->macs_per_cycle);
    else
        units = filters * channels * ceil_div(rows * columns * l->kernel, m->macs_per_cycle);
    return units / m->efficiency + m->mac_setup + m->step;
}

static Traffic in_transfer(const Layer *l, const Machine *m, int64_t channels, int64_t rows,
                           int64_t columns) {
    return map_transfer(flat_in(l), channels, rows, columns, l->in_columns, l->element_bytes,
                        m->burst_bytes);
}

static Traffic out_transfer(const Layer *l, const Machine *m, int64_t filters, int64_t rows,
                            int64_t columns) {
    return map_transfer(flat_out(l), filters, rows, columns, l->columns, l->element_bytes,
                        m->burst_bytes);
}

/* --- the paper's estimate: Equations 3-9 ---------------------------------------------------- */

/* IN and W tiles count once a TLE, as in Equation 3, OUT tiles for every TLT; TLTs that own whole
 * groups share nothing. CAS a burst whatever the transfer (Algorithm 4). Only the channels are not
 * rounded up to whole tiles. */
static double estimate(const Layer *l, const Machine *m, const Slice *s, int schedule,
                       int64_t items_m, int64_t tile_n, int64_t tile_r, int64_t tile_c) {
    int64_t per_tlt = ceil_div(s->items_each, m->tlts), active = least(s->items_each, m->tlts);
    int64_t tiles_m = ceil_div(per_tlt, items_m);
    int64_t places = ceil_div(s->rows_each, tile_r) * ceil_div(l->columns, tile_c);
    int64_t filters = items_m * s->item_filters, owners = s->grouped ? active : 1;
    int64_t in_rows = least((tile_r - 1) * l->stride_rows + l->span_rows, l->in_rows);
    int64_t in_columns = least((tile_c - 1) * l->stride_columns + l->span_columns, l->in_columns);
    int64_t full = s->channels / tile_n, rest = s->channels % tile_n, side, units = 0, steps = 0;
    Traffic all = {0, 0, 0, 0};

    for (side = 0; side < 2; side++) {
        int64_t depth = side ? rest : tile_n, walks = tiles_m * places * (side ? 1 : full);
        int64_t in_channels = s->grouped ? items_m * s->channels : depth;
        if (depth == 0)
            continue;
        add(&all, in_transfer(l, m, in_channels, in_rows, in_columns), owners * walks);
        if (schedule != WS)
            add(&all, weight_transfer(l, filters, depth, tile_n == s->channels ? depth : -1,
                                      m->burst_bytes), owners * walks);
        if (l->dense)
            units += walks * filters * ceil_div(depth, m->macs_per_cycle);
        else
            units += walks * filters * depth
                     * ceil_div(tile_r * tile_c * l->kernel, m->macs_per_cycle);
        steps += walks;
    }
    if (schedule == WS)
        add(&all, weight_transfer(l, filters, s->channels, s->channels, m->burst_bytes),
            owners * tiles_m);
    add(&all, out_transfer(l, m, filters, tile_r, tile_c),
        active * tiles_m * places * (1 + l->residual));
    return (all.transfers * m->setup + all.bursts * m->dram_burst + all.bytes / m->bytes_per_cycle
            + units / m->efficiency + steps * m->mac_setup) * s->repeats;
}

/* --- ragged edges counted ------------------------------------------------------------------ */

/* The tiles of positions begin .. begin + count: (OFM extent, IFM extent inside the tensor). */
static int cut_axis(Axis *axis, int64_t begin, int64_t count, int64_t tile, int64_t stride,
                     int64_t span, int64_t padding, int64_t in_extent) {
    int64_t start, end = begin + count;
    axis->count = axis->tiles = 0;
    axis->number = 1;
    for (start = begin; start < end; start += tile) {
        int64_t extent = least(tile, end - start), low = start * stride - padding, k;
        int64_t high = low + (extent - 1) * stride + span;
        int64_t real = most(0, least(high, in_extent) - most(low, 0));
        for (k = 0; k < axis->count; k++)
            if (axis->kinds[k].extent == extent && axis->kinds[k].real == real)
                break;
        if (k == axis->count) {
            if (k == MOST_KINDS)
                return TOO_MANY_KINDS;
            axis->kinds[k].extent = extent;
            axis->kinds[k].real = real;
            axis->kinds[k].number = 0;
            axis->count++;
        }
        axis->kinds[k].number++;
        axis->tiles++;
    }
    return DONE;
}

static int same_tiles(const Axis *a, const Axis *b) {
    int64_t k;
    if (a->count != b->count)
        return 0;
    for (k = 0; k < a->count; k++)
        if (a->kinds[k].extent != b->kinds[k].extent || a->kinds[k].real != b->kinds[k].real
            || a->kinds[k].number != b->kinds[k].number)
            return 0;
    return 1;
}

/* The row slices that hold anything, equal ones once. */
static int cut_rows(const Layer *l, Slice *s, int64_t tile_r) {
    int64_t begin, i;
    s->row_kinds = 0;
    for (begin = 0; begin < l->rows; begin += s->rows_each) {
        Axis *axis = &s->rows[s->row_kinds];
        if (cut_axis(axis, begin, least(s->rows_each, l->rows - begin), tile_r, l->stride_rows,
                     l->span_rows, l->padding_rows, l->in_rows))
            return TOO_MANY_KINDS;
        for (i = 0; i < s->row_kinds && !same_tiles(axis, &s->rows[i]); i++)
            ;
        if (i < s->row_kinds)
            s->rows[i].number++;
        else
            s->row_kinds++;
    }
    return DONE;
}

/* TLTs that share nothing and go through ``rounds``, one of which works while others load
 * (codegen/nmp/plan/rounds.py); ``before``: what is loaded in front of the first. */
static double rounds_cycles(double all, double before, double loads, double stores, double macs,
                            int64_t tlts, int64_t rounds) {
    double load = loads / (tlts * rounds), store = stores / (tlts * rounds), mac = macs / rounds;
    double both = load + store, own;
    if (tlts == 1)
        return all + macs;
    if (rounds == 1) {
        own = before + mac + larger(load + tlts * store, tlts * load + store);
        return larger(all, own);
    }
    own = before + larger(tlts * load, load + mac) + tlts * both
          + (rounds - 2) * larger(tlts * both, both + mac) + mac + store;
    return larger(all + larger(0, mac - (tlts - 1) * load), own);
}

/* One buffer, TLTs that share tiles in one place each (codegen/nmp/plan/in_turn.py): under WS the
 * last of them to get W, of all channels, is behind the others, which store meanwhile. */
static double in_turn_cycles(double inputs, double weights, double biases, double stores,
                             double macs, int64_t tlts, int64_t turns) {
    double gain = smaller(weights / tlts, stores * (1 - 1.0 / tlts) / turns);
    if (tlts == 1)
        gain = 0;
    return inputs + weights + biases + stores + macs - smaller(gain, macs / turns);
}

/* Cycles of one TLE for ``items`` items and these rows and columns; its traffic into ``sum``. */
static double tle_cycles(const Layer *l, const Machine *m, const Slice *s, int schedule,
                         const Axis *rows, const Axis *columns, int64_t items, int64_t items_m,
                         int64_t tile_n, Traffic *sum) {
    int64_t base = items / m->tlts, extra = items % m->tlts;
    int64_t longest = base + (extra > 0), steps = ceil_div(longest, items_m);
    int64_t positions = rows->tiles * columns->tiles, step, r, c, n, side;
    int64_t full = s->channels / tile_n, rest = s->channels % tile_n;
    int64_t whole = least(steps, base / items_m); /* steps of which every TLT's tile is full */
    Traffic loads = {0, 0, 0, 0}, stores = {0, 0, 0, 0}, biases = loads, weights = loads;
    Traffic all = loads;
    double macs = 0, rivals = s->row_slices * s->item_slices; /* all TLEs in step */
    double in_time, w_time, out_time, bias_time;
    int64_t beats, largest_rows = 0, largest_columns = 0;

    for (r = 0; r < rows->count && !s->grouped; r++)
        for (c = 0; c < columns->count; c++) {
            const Kind *a = &rows->kinds[r], *b = &columns->kinds[c];
            int64_t places = steps * a->number * b->number;
            add(&loads, in_transfer(l, m, tile_n, a->real, b->real), places * full);
            if (rest)
                add(&loads, in_transfer(l, m, rest, a->real, b->real), places);
        }
    for (side = 0; side < 2; side++) {
        int64_t run = side ? base : base + 1, tlts = side ? m->tlts - extra : extra;
        add(&biases, linear_transfer(1, run * s->item_filters * 4, m->burst_bytes), tlts);
    }
    for (step = whole ? whole - 1 : 0; step < steps; step++) {
        int64_t times = whole && step == whole - 1 ? whole : 1, largest = 0;
        int64_t sizes[2], tlts[2] = {extra, m->tlts - extra};
        for (side = 0; side < 2; side++) {
            int64_t left = (side ? base : base + 1) - step * items_m;
            int64_t filters, loaded = times * tlts[side];
            sizes[side] = loaded ? most(0, least(items_m, left)) : 0;
            filters = sizes[side] * s->item_filters;
            if (sizes[side] == 0)
                continue;
            largest = most(largest, sizes[side]);
            if (schedule == WS) {
                add(&weights, weight_transfer(l, filters, s->channels, s->channels, m->burst_bytes),
                    loaded);
                continue;
            }
            add(&weights, weight_transfer(l, filters, tile_n, s->channels, m->burst_bytes),
                loaded * positions * full);
            if (rest)
                add(&weights, weight_transfer(l, filters, rest, s->channels, m->burst_bytes),
                    loaded * positions);
        }
        for (r = 0; r < rows->count; r++)
            for (c = 0; c < columns->count; c++) {
                const Kind *a = &rows->kinds[r], *b = &columns->kinds[c];
                int64_t places = times * a->number * b->number;
                for (n = 0; n < 2; n++) {
                    int64_t extent = n ? rest : tile_n, number = n ? 1 : full;
                    if (extent == 0)
                        continue;
                    macs += places * number
                            * mac_cycles(l, m, largest * s->item_filters, extent, a->extent,
                                         b->extent);
                }
                for (side = 0; side < 2; side++) {
                    if (sizes[side] == 0)
                        continue;
                    if (s->grouped)
                        add(&loads, in_transfer(l, m, sizes[side] * s->channels, a->real, b->real),
                            places * tlts[side]);
                    add(&stores,
                        out_transfer(l, m, sizes[side] * s->item_filters, a->extent, b->extent),
                        places * tlts[side]);
                }
            }
    }
    for (r = 0; r < rows->count; r++)
        largest_rows += rows->kinds[r].number * rows->kinds[r].extent;
    for (c = 0; c < columns->count; c++)
        largest_columns += columns->kinds[c].number * columns->kinds[c].extent;
    beats = ceil_div(longest * s->item_filters * largest_rows * largest_columns, m->macs_per_cycle);
    macs += (1 + l->residual) * (most(beats, steps * positions) / m->efficiency
                                 + steps * positions * m->mac_setup);
    in_time = engine_cycles(loads, m, rivals);
    w_time = engine_cycles(weights, m, rivals);
    bias_time = engine_cycles(biases, m, rivals);
    out_time = engine_cycles(stores, m, rivals);
    add(&all, loads, 1);
    add(&all, stores, 1 + l->residual);
    add(&all, weights, 1);
    add(&all, biases, 1);
    add(sum, all, 1);
    if (s->grouped)
        return rounds_cycles(in_time + w_time + bias_time + (1 + l->residual) * out_time, bias_time,
                             in_time + w_time + l->residual * out_time, out_time, macs,
                             least(items, m->tlts), steps * positions);
    out_time *= 1 + l->residual;
    if ((schedule == WS) == (full + (rest > 0) > 1))
        return in_time + w_time + bias_time + out_time + macs;
    if (schedule != WS) /* the next step's W comes while the last TLTs multiply */
        return in_time + w_time + bias_time + out_time + macs
               - (least(items, m->tlts) > 1 ? smaller(w_time / least(items, m->tlts), macs / 4) : 0);
    return in_turn_cycles(in_time, w_time, bias_time, out_time, macs, least(items, m->tlts),
                          positions);
}

static double exact_time(const Layer *l, const Machine *m, const Slice *s, int schedule,
                         const Axis *columns, int64_t items_m, int64_t tile_n) {
    Traffic all = {0, 0, 0, 0};
    double slowest = 0, shared;
    int64_t i, last, full = s->items / s->items_each, rest = s->items % s->items_each;
    for (i = 0; i < s->row_kinds; i++)
        for (last = 0; last < 2; last++) {
            int64_t items = last ? rest : s->items_each, number = last ? 1 : full;
            Traffic one = {0, 0, 0, 0};
            double own;
            if (items == 0)
                continue;
            own = tle_cycles(l, m, s, schedule, &s->rows[i], columns, items, items_m, tile_n, &one);
            add(&all, one, number * s->rows[i].number);
            if (own > slowest)
                slowest = own;
        }
    shared = dram_cycles(all, m);
    return (slowest > shared ? slowest : shared) * s->repeats;
}

/* --- the search ---------------------------------------------------------------------------- */

/* Algorithm 3: every T_R, T_C and T_N of a slice (grouped: every number of groups a tile). */
static int tile_tlts(const Layer *l, const Machine *m, Slice *s, int schedule,
                     int exact_edges, Best *best) {
    int64_t per_tlt = ceil_div(s->items_each, m->tlts), size = l->element_bytes;
    int64_t mb2 = l->residual ? least(m->mb2, m->mb0) : m->mb2, tile_r, tile_c, step;
    Axis columns;

    for (tile_r = 1; tile_r <= s->rows_each; tile_r++) {
        int64_t in_rows = (tile_r - 1) * l->stride_rows + l->span_rows;
        if (in_rows * l->span_columns * size > m->mb0 || tile_r * size > mb2)
            break;
        if (exact_edges && cut_rows(l, s, tile_r))
            return TOO_MANY_KINDS;
        for (tile_c = 1; tile_c <= l->columns; tile_c++) {
            int64_t in_columns = (tile_c - 1) * l->stride_columns + l->span_columns;
            int64_t in_area = in_rows * in_columns * size, out_area = tile_r * tile_c * size;
            if (in_area > m->mb0 || out_area > mb2)
                break;
            if (exact_edges && cut_axis(&columns, 0, l->columns, tile_c, l->stride_columns,
                                        l->span_columns, l->padding_columns, l->in_columns))
                return TOO_MANY_KINDS;
            for (step = 1; step <= (s->grouped ? per_tlt : s->channels); step++) {
                int64_t tile_n = s->grouped ? s->channels : step;
                int64_t in_channels = s->grouped ? step * s->channels : step;
                int64_t w_channels = schedule == WS ? s->channels : tile_n;
                int64_t item_bytes = s->item_filters * w_channels * l->kernel * size;
                int64_t items_m = least(per_tlt, m->mb1 / item_bytes);
                double time;
                items_m = least(items_m, mb2 / (out_area * s->item_filters));
                if (schedule == OS && !s->grouped) /* with all of them it is IS */
                    items_m = least(items_m, ceil_div(per_tlt, 2));
                if (in_channels * in_area > m->mb0 || items_m == 0)
                    break;
                if (s->grouped) {
                    if (step > items_m)
                        break;
                    items_m = step;
                } else if (schedule == IS && items_m < per_tlt)
                    break;
                if (exact_edges)
                    time = exact_time(l, m, s, schedule, &columns, items_m, tile_n);
                else
                    time = estimate(l, m, s, schedule, items_m, tile_n, tile_r, tile_c);
                best->candidates++;
                if (time < best->time) {
                    best->time = time;
                    best->grouped = s->grouped;
                    best->row_slices = s->row_slices;
                    best->filter_slices = s->item_slices;
                    best->schedule = schedule;
                    best->tile_m = items_m * s->item_filters;
                    best->tile_n = tile_n;
                    best->tile_r = tile_r;
                    best->tile_c = tile_c;
                }
            }
        }
    }
    return DONE;
}

/* Algorithm 1 for one convolution; ``slices`` are the row and filter slices of Algorithm 2. A
 * layer that nothing fits keeps best->tile_m = 0. Anything but DONE is a refusal. */
int brute_force(const Layer *layer, const Machine *m, const int64_t *slices, int64_t splits,
                int exact_edges, Best *best) {
    int64_t split, grouped;
    int schedule;
    best->time = 1e300;
    best->candidates = best->tile_m = 0;
    for (split = 0; split < splits; split++)
        for (grouped = 0; grouped < (layer->groups > 1 ? 2 : 1); grouped++) {
            Layer l = *layer;
            Slice s;
            s.channels = l.channels / l.groups;
            s.grouped = grouped;
            s.item_filters = grouped ? l.filters / l.groups : 1;
            s.items = grouped ? l.groups : l.filters / l.groups;
            s.repeats = grouped ? 1 : l.groups;
            if (!grouped) {
                l.filters /= l.groups;
                l.channels /= l.groups;
            }
            s.row_slices = slices[2 * split];
            s.item_slices = slices[2 * split + 1];
            s.rows_each = ceil_div(l.rows, s.row_slices);
            s.items_each = ceil_div(s.items, s.item_slices);
            if (s.row_slices > MOST_TLES)
                return TOO_MANY_TLES;
            if (ceil_div(s.items_each, m->tlts) * s.item_filters * 4 > m->bias)
                continue;
            for (schedule = grouped ? OS : IS; schedule <= WS; schedule++)
                if (tile_tlts(&l, m, &s, schedule, exact_edges, best))
                    return TOO_MANY_KINDS;
        }
    return DONE;
}
