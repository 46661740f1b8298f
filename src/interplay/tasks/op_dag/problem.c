// Problems read from their tuples, their structure key, and the verdict from the bits of nodes, as in op_dag.dag and op_dag.prose.

#include "op_dag.h"

int unsure;

Text stripped(Text text) {
    while (text.size && is_blank(text.at[0])) text = after(text, 1);
    while (text.size && is_blank(text.at[text.size - 1])) text.size--;
    if (text.size && (text.at[0] | text.at[text.size - 1]) & 0x80) unsure = 1;
    return text;
}

long find_character(Text text, char what) {
    const char *found = text.size ? memchr(text.at, what, text.size) : NULL;
    return found ? found - text.at : -1;
}

long find(Text text, Text what) {
    for (long at = 0; at + what.size <= text.size; at++) {
        const long next = find_character(after(text, at), what.at[0]);
        if (next < 0) return -1;
        at += next;
        if (starts(after(text, at), what)) return at;
    }
    return -1;
}

static PyObject *item(PyObject *tuple, long at) {
    PyObject *found = tuple ? PyTuple_GetItem(tuple, at) : NULL;
    if (!found) unsure = 1;
    return found;
}

static long length(PyObject *tuple) {
    const ssize_t found = tuple ? PyTuple_Size(tuple) : -1;
    if (found < 0) unsure = 1;
    return found;
}

static long long integer(PyObject *from) {
    if (!from) return 0;
    const long long found = PyLong_AsLongLong(from);
    if (found == -1 && PyErr_Occurred()) unsure = 1;
    if (found > LARGEST || found < -LARGEST) unsure = 1;
    return found;
}

static Text text_of(PyObject *from) {
    ssize_t size = 0;
    const char *at = from ? PyUnicode_AsUTF8AndSize(from, &size) : NULL;
    if (!at) unsure = 1;
    return (Text){at, at ? size : 0};
}

PyObject *unknown(void) {
    PyErr_Clear();
    return Py_BuildValue("");
}

static int failed(void) {
    if (unsure) PyErr_Clear();
    return unsure;
}

int read_text(PyObject *from, Text *out) {
    *out = text_of(from);
    return !failed() && out->size <= LONGEST;
}

static void read_node(PyObject *from, int prose, int count, Node *node) {
    node->name = text_of(item(from, 0));
    node->place = prose ? text_of(item(from, 1)) : (Text){"", 0};
    node->total = prose ? integer(item(from, 2)) != 0 : 0;
    const Text operator = text_of(item(from, prose ? 5 : 1));
    node->operator = operator.size ? operator.at[0] : 0;
    if (operator.size > 1) unsure = 1;
    node->minus = prose ? integer(item(from, 6)) != 0 : node->operator == '-';
    PyObject *constant = item(from, prose ? 4 : 3), *parents = item(from, prose ? 3 : 2);
    node->has_constant = constant && constant != &_Py_NoneStruct;
    node->constant = node->has_constant ? integer(constant) : 0;
    node->count = 0, node->reads = 0;
    const long reads = length(parents);
    if (unsure || reads > MOST) {
        unsure = 1;
        return;
    }
    for (long at = 0; at < reads; at++) {
        const long long parent = integer(item(parents, at));
        if (parent < 0 || parent >= count) {
            unsure = 1;
            return;
        }
        node->parents[node->count++] = parent;
        node->reads |= BIT(parent);
    }
}

int read_problem(PyObject *from, int prose, Problem *out) {
    unsure = 0;
    PyObject *nodes = item(from, 2), *values = item(from, 4), *slopes = item(from, 5), *modulus = item(from, 1);
    const Text mode = text_of(item(from, 0));
    const long count = length(nodes);
    const long long necessary = integer(item(from, 3));
    if (failed() || count > MOST || necessary < 1 || necessary > count) return 0;
    if (length(values) != necessary || length(slopes) != necessary) return 0;
    out->prose = prose, out->reverse = equal(mode, TEXT("reverse")), out->count = count, out->necessary = necessary;
    out->modulus = prose || modulus == &_Py_NoneStruct ? 0 : integer(modulus);
    if (!out->reverse && !equal(mode, TEXT("forward"))) return 0;
    for (long at = 0; at < count && !unsure; at++) {
        read_node(item(nodes, at), prose, at < necessary ? necessary : count, out->nodes + at);
        if (prose && out->nodes[at].minus && out->nodes[at].count != 2) unsure = 1;
    }
    for (long at = 0; at < necessary && !unsure; at++) {
        const long long value = out->values[at] = integer(item(values, at)), slope = integer(item(slopes, at));
        const long long rest = out->reverse ? minus(value, times(slope, out->values[0])) : value;
        out->forms[at] = out->reverse ? (Form){slope, residue(rest, out->modulus)} : (Form){0, value};
    }
    return !failed();
}

PyObject *counted(const Problem *problem, const int *state, int asked, int extra, int readable, const Text *answer) {
    int correct = 0, missing = 0, dependency = 0, operators = 0, value = 0;
    const int ignored = (asked & WITH_OPERATOR ? 0 : BAD_OPERATOR) | (asked & WITH_ARITHMETIC ? 0 : UNWORKED);
    if (unsure) return unknown();
    for (int at = 0; at < problem->necessary; at++) {
        const int bits = state[at] & ~ignored;
        const int equation = problem->reverse && at == problem->necessary - 1 ? STATED : 0;
        const int wanted = VALUED | (problem->nodes[at].count ? NAMED : 0) | equation;
        if (bits == wanted) {
            correct++;
        } else if (!(bits & VALUED)) {
            missing++;
        } else {
            value += bits & (BAD_VALUE | UNWORKED) || equation & ~bits;
            dependency += bits & BAD_PARENTS || wanted & NAMED & ~bits;
            operators += (bits & BAD_OPERATOR) != 0;
        }
    }
    PyObject *said = answer ? PyUnicode_FromStringAndSize(answer->at, answer->size) : Py_BuildValue("");
    return Py_BuildValue("(iiiiiiiN)", correct, missing, dependency, operators, value, extra, readable, said);
}

// The structure key.

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t first_colour(const Problem *problem, int place) {
    const Node *node = problem->nodes + place;
    const uint64_t constant = node->has_constant ? node->constant + 2 : 0, goal = place == problem->necessary - 1;
    const uint64_t unknown = !node->has_constant && !node->count;
    if (!problem->prose) {
        const uint64_t operator = node->operator == '+' ? 2 : node->operator == '-' ? 3 : node->operator == '*' ? 4 : 1;
        return mix((((constant * 8 + operator) * 2 + goal) * 2 + unknown) + 1);
    }
    const uint64_t operator = node->operator == '+' ? 1 : node->operator == '*' ? 2 : 0;
    const uint64_t kind = ((operator * 2 + node->minus) * 2 + node->total) * 2 + unknown;
    return mix((constant * 64 + kind) * 2 + goal + 1);
}

static void refine(const Problem *problem, uint64_t *colours) {
    uint64_t totals[MOST];
    for (int at = 0; at < problem->count; at++) {
        const Node *node = problem->nodes + at;
        uint64_t total = colours[at] * 3;
        for (int number = 0; number < node->count; number++)
            total += mix(colours[node->parents[number]] + (node->minus ? number : 0));
        colours[at] = mix(total);
    }
    for (int at = 0; at < problem->count; at++) totals[at] = colours[at] * 5;
    for (int at = problem->count - 1; at >= 0; at--) {
        const Node *node = problem->nodes + at;
        colours[at] = mix(totals[at]);
        for (int number = 0; number < node->count; number++)
            totals[node->parents[number]] += mix(colours[at] + (node->minus ? number : 0) + 7);
    }
}

// The structure key of a problem as an integer; None where Python has to find it.
PyObject *structure_key(PyObject *from, int prose) {
    Problem problem;
    uint64_t colours[MOST], total = 0;
    if (!read_problem(from, prose, &problem)) return unknown();
    for (int at = 0; at < problem.count; at++) {
        for (int number = 0; number < problem.nodes[at].count; number++)
            if (problem.nodes[at].parents[number] >= at) return unknown();
        colours[at] = first_colour(&problem, at);
    }
    const int goal = problem.necessary - 1;
    const uint64_t given = problem.reverse ? problem.values[goal] + 1 : 0;
    colours[goal] = mix(colours[goal] + given * 131 + problem.modulus);
    refine(&problem, colours), refine(&problem, colours);
    for (int at = 0; at < problem.count; at++) total += colours[at];
    return Py_BuildValue("K", (unsigned long long)mix(total));
}
