// The verdict on a completion of a prose problem, as op_dag.prose_verifier finds it.

#include "prose.h"

static const Text VALUE_UNKNOWN = TEXT("we don't know its value yet but will find it out later");

static void bind(Reading *reading, int letter, const Bound *bound) {
    Bound *out = reading->bounds + letter;
    set_plain(out, bound->reach, bound->known, bound->form, bound->print);
    out->count = bound->count;
    memcpy(out->constants, bound->constants, bound->count * sizeof *bound->constants);
    reading->bound |= BIT(letter);
}

static int node_bits(const Reading *reading, int place, const Statement *found) {
    const Problem *problem = reading->problem;
    const Node *node = problem->nodes + place;
    const Bound *bound = &found->bound;
    int bits = found->named ? NAMED : 0;
    if (found->has_value) bits |= same(found->value, problem->forms[place]) ? VALUED : VALUED | BAD_VALUE;
    if (!found->sound) bits |= BAD_VALUE;
    if (found->named && bound->reach != node->reads) return bits | BAD_PARENTS;
    for (int at = 0; at < node->count; at++)
        if (!(reading->state[node->parents[at]] & VALUED)) bits |= BAD_PARENTS;
    if (found->named && bound->print != reading->prints[place]) {
        const int constants = bound->count == node->has_constant && (!bound->count || bound->constants[0] == node->constant);
        bits |= constants ? BAD_OPERATOR : BAD_VALUE;
    }
    return bits;
}

// The place of a node by its full name, or -1.
static int place_of(const Problem *problem, Text name) {
    static const Text in = TEXT(" in ");
    for (int place = problem->count - 1; place >= 0; place--) {
        const Node *node = problem->nodes + place;
        if (name.size == node->name.size + in.size + node->place.size && starts(name, node->name) &&
            starts(after(name, node->name.size), in) && equal(after(name, node->name.size + in.size), node->place))
            return place;
    }
    return -1;
}

static void note_extra(Reading *reading, Text name) {
    for (int at = 0; at < reading->extra; at++)
        if (equal(reading->extras[at], name)) return;
    if (reading->extra == EXTRAS) {
        unsure = 1;
        return;
    }
    reading->extras[reading->extra++] = name;
}

// Judge the definition of a node, whose clauses are parsed, and bind its letters.
static void define(Reading *reading, Text name, int letter, int value_unknown) {
    const Problem *problem = reading->problem;
    const int place = place_of(problem, name), necessary = place >= 0 && place < problem->necessary;
    Bound own;
    if (value_unknown && place == 0 && problem->reverse) {
        reading->unknown = letter;
        set_plain(&own, BIT(0), 1, (Form){1, 0}, reading->weights[0]);
        bind(reading, letter, &own);
    }
    const int unknown = reading->unknown;
    int bits = necessary && value_unknown && unknown == letter && place == 0 ? VALUED : 0;
    long read = -1;  // the last clause that reads the node's own letter to bind it again
    for (long number = 0; number < reading->clause_count; number++) {
        const Clause *clause = reading->clauses + number;
        if (clause->letter == letter && reading->sides[clause->first].letters & BIT(letter)) read = number;
    }
    int known = 0;
    Form form = {0, 0};
    Statement found;
    for (long number = 0; number < reading->clause_count; number++) {
        const Clause *clause = reading->clauses + number;
        state_clause(reading, clause, &found);
        if (clause->letter != letter || number < read) {
            bits |= found.sound && found.follows ? 0 : BAD_VALUE;
            bind(reading, clause->letter, &found.bound);
        } else {
            bits |= necessary ? node_bits(reading, place, &found) : 0;
            known = found.bound.known, form = found.bound.form;
        }
    }
    if (necessary) {
        reading->state[place] |= bits;
        set_node(reading, &own, place);
    } else {
        note_extra(reading, name);
        set_plain(&own, BIT(place < 0 ? UNBOUND : place), known, form, place < 0 ? 0 : reading->weights[place]);
    }
    bind(reading, letter, &own);
    if (unknown >= 0) {
        const Bound *now = reading->bounds + unknown;
        if (now->reach != BIT(0) || !now->known || !same(now->form, (Form){1, 0}) || now->print != reading->weights[0] || now->count)
            reading->unknown = -1;  // the letter is bound to something else now
    }
}

// Judge a sentence that may be `Define <name> as <letter>; ...`: -1 where it is none, 0 where it cannot be parsed.
static int read_definition(Reading *reading, Text text) {
    static const Text head = TEXT("Define "), as = TEXT(" as ");
    if (!starts(text, head)) return -1;
    for (long at = head.size + 1;; at++) {
        const long next = at <= text.size ? find(after(text, at), as) : -1;
        if (next < 0) return -1;
        at += next;
        const Text rest = after(text, at + as.size);
        if (!rest.size || !is_letter(rest.at[0]) || (rest.size > 1 && rest.at[1] != ';')) continue;
        int value_unknown = 0;
        for (Text pieces = after(rest, rest.size > 1 ? 2 : 1); pieces.at;) {
            const long end = find_character(pieces, ';');
            Text piece = stripped(end < 0 ? pieces : before(pieces, end));
            if (starts(piece, TEXT("so "))) piece = after(piece, 3);
            if (equal(piece, VALUE_UNKNOWN))
                value_unknown = 1;
            else if (piece.size && !parse_clause(reading, piece))
                return 0;
            pieces = end < 0 ? (Text){NULL, 0} : after(pieces, end + 1);
        }
        define(reading, before(after(text, head.size), at - head.size), letter_of(rest.at[0]), value_unknown);
        return 1;
    }
}

// Up to nine digits with or without a sign at `at`.
static int short_number(Text text, long *at, long long *out) {
    const int negative = *at < text.size && text.at[*at] == '-';
    long end = *at + negative, start = end;
    *out = 0;
    while (end < text.size && is_digit(text.at[end]) && end - start < 9) *out = *out * 10 + (text.at[end++] - '0');
    if (negative) *out = -*out;
    *at = end;
    return end > start;
}

// A quotient such as `8/-2`: 0 where the text is none, else 1, and in `known` whether it is an integer.
static int quotient(Text text, int *known, Form *out) {
    long at = 0;
    long long above, below;
    if (!short_number(text, &at, &above) || at >= text.size || text.at[at++] != '/') return 0;
    if (!short_number(text, &at, &below) || at != text.size) return 0;
    *known = below && above % below == 0;
    *out = (Form){0, *known ? above / below : 0};
    return 1;
}

// A piece of a claim without its words, in `out`; its size.
static long without_words(Text piece, char *out) {
    long size = 0;
    for (long at = 0; at < piece.size;) {
        long end = at;
        while (end < piece.size && is_letter(piece.at[end])) end++;
        if (end - at >= 2) {
            at = end;
            if (starts(after(piece, at), TEXT("'t"))) at += 2;
        } else {
            out[size++] = piece.at[at++];
        }
    }
    return size;
}

// Whether the sides of a chain of equals have one value at the true value of the unknown; -1 where it cannot be parsed. `stated`
// is set where it holds and equates the goal's form in the unknown with its given value.
static int chain_holds(Reading *reading, Text text, int *stated) {
    const Problem *problem = reading->problem;
    const int goal = problem->necessary - 1, unknown = reading->unknown;
    const long long answer = problem->values[problem->reverse ? 0 : goal];
    char side[SIDE + 1];
    long long value = 0;
    int holds = 1, equation = 0, number_given = 0;
    for (int number = 0; text.at; number++) {
        const long size = next_side(&text, side);
        Form form = {0, 0};
        int known;
        if (size > SIDE || !quotient((Text){side, size}, &known, &form)) {
            uint64_t print;
            if (!parse_side(reading, side, size)) return -1;
            const Side *parsed = reading->sides + reading->side_count - 1;
            known = form_of(reading, reading->terms + parsed->first, parsed->count, &form, &print);
            equation |= known && unknown >= 0 && parsed->letters == BIT(unknown) && same(form, problem->forms[goal]);
        }
        number_given |= known && same(form, (Form){0, problem->values[goal]});
        const long long now = known ? plus(times(form.slope, answer), form.rest) : 0;
        if (!known || (number && now != value)) holds = 0;
        value = now;
    }
    if (holds && problem->reverse && equation && number_given) *stated = 1;
    return holds;
}

// Judge a sentence of equalities without a name; 0, and nothing is marked, where one of them cannot be parsed.
static int read_claim(Reading *reading, Text text, char *room) {
    int holds = 1, stated = 0, *goal = reading->state + reading->problem->necessary - 1;
    for (long at = 0; at < text.size; at++)
        if (text.at[at] & 0x80) unsure = 1;  // it may be of a word
    while (text.at) {
        long end = 0;
        while (end < text.size && text.at[end] != ':' && text.at[end] != ',' && text.at[end] != ';') end++;
        const Text piece = before(text, end);
        text = end < text.size ? after(text, end + 1) : (Text){NULL, 0};
        if (find_character(piece, '=') < 0) continue;
        int equation = 0;
        const int found = chain_holds(reading, (Text){room, without_words(piece, room)}, &equation);
        if (found < 0) return 0;
        stated |= holds && equation;  // what follows a wrong chain states nothing
        holds &= found;
    }
    *goal |= (stated ? STATED : 0) | (holds ? 0 : BAD_VALUE);
    return 1;
}

// The next sentence of a text: what is before a stop or the end of the solution.
static Text next_sentence(Text *rest) {
    static const Text close = TEXT("</solution>");
    for (long at = 0; at < rest->size; at++) {
        const long mark = rest->at[at] == '.' ? 1 : rest->at[at] == '<' && starts(after(*rest, at), close) ? close.size : 0;
        if (!mark) continue;
        const Text found = before(*rest, at);
        *rest = after(*rest, at + mark);
        return found;
    }
    const Text found = *rest;
    *rest = (Text){NULL, 0};
    return found;
}

// The answer of a completion, and its text before that in `body`; 0 where there is none.
static int find_answer(Text completion, Text *body, Text *answer) {
    static const Text open = TEXT("<answer>"), close = TEXT("</answer>"), head = TEXT("Answer:");
    const long mark = find(completion, open);
    *body = mark < 0 ? completion : before(completion, mark);
    if (mark >= 0) {
        const Text rest = after(completion, mark + open.size);
        const long end = find(rest, close);
        if (end >= 0) *answer = stripped(before(rest, end));
        return end >= 0;
    }
    int found = 0;
    for (long at = 0;;) {
        const long next = find(after(completion, at), head);
        if (next < 0) return found;
        long start = at + next + head.size, end = start;
        while (end < completion.size && completion.at[end] != '.' && completion.at[end] != '\n') end++;
        if (end == completion.size) return found;
        at += next + 1;
        if (completion.at[end] == '\n') continue;
        while (start < end && completion.at[start] == ' ') start++;
        *answer = stripped(before(after(completion, start), end - start)), found = 1;
        at = end + 1;
    }
}

static PyObject *judge(const Problem *problem, Text completion, int asked, Reading *reading, char *room) {
    Text rest, answer;
    int readable = 1;
    const int answered = find_answer(completion, &rest, &answer);
    reading->problem = problem, reading->bound = 0, reading->unknown = -1, reading->extra = 0;
    for (int place = 0; place < problem->necessary; place++)
        reading->state[place] = 0, reading->prints[place] = print_of(problem->nodes + place, reading->weights);
    while (rest.at && !unsure) {
        const Text whole = next_sentence(&rest), text = stripped(whole);
        if (find_character(whole, '=') < 0 && find(whole, TEXT("Define")) < 0) continue;
        reading->term_count = reading->side_count = reading->clause_count = 0;
        const int found = read_definition(reading, text);
        readable &= found >= 0 ? found : !starts(text, TEXT("Define")) && read_claim(reading, text, room);
    }
    return counted(problem, reading->state, asked, reading->extra, readable, answered ? &answer : NULL);
}

// The counts of a completion (`counted`). `weights` (MOST,): integers of 64 bits below PRIME.
PyObject *judge_prose(PyObject *from, PyObject *completion, const char *weights, int asked) {
    Problem problem;
    Reading reading;
    Text text;
    if (!read_problem(from, 1, &problem) || !read_text(completion, &text)) return unknown();
    reading.weights = (const uint64_t *)weights;
    reading.terms = malloc((2 * text.size + 8) * sizeof *reading.terms);
    reading.sides = malloc((text.size + 8) * sizeof *reading.sides);
    reading.clauses = malloc((text.size + 8) * sizeof *reading.clauses);
    char *room = malloc(text.size + 1);
    PyObject *found = reading.terms && reading.sides && reading.clauses && room
                          ? judge(&problem, text, asked, &reading, room)
                          : unknown();
    free(reading.terms), free(reading.sides), free(reading.clauses), free(room);
    return found;
}
