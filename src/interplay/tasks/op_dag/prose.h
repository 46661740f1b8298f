// What the files on verdicts of prose share: sides of equalities, clauses of definitions, and what a reading has found so far.
#pragma once

#include "op_dag.h"

#define SIDE 120            // characters of a side, without blanks
#define CONSTANTS 99        // of a bound letter
#define EXTRAS 64           // names of other nodes
#define PRIME ((1ULL << 61) - 1)
#define UNBOUND 63          // the node of unbound letters, and of names that are no nodes

typedef struct {
    uint64_t reach;
    int known;
    Form form;
    uint64_t print;
    long count;
    long long constants[CONSTANTS];
} Bound;

typedef struct {
    long first, count;  // terms
    uint64_t letters;
    int known, result;
    Form form;
} Side;

typedef struct {
    int letter;
    long first, count;  // sides
} Clause;

typedef struct {
    const Problem *problem;
    const uint64_t *weights;  // the random numbers of nodes in fingerprints
    int state[MOST];
    uint64_t prints[MOST];
    uint64_t bound;  // letters that are bound
    Bound bounds[52];
    int unknown;  // its letter, or -1
    Text extras[EXTRAS];
    int extra;
    Term *terms;
    Side *sides;
    Clause *clauses;
    long term_count, side_count, clause_count;
} Reading;

typedef struct {
    Bound bound;
    int named, has_value, sound, follows;
    Form value;
} Statement;

void set_plain(Bound *out, uint64_t reach, int known, Form form, uint64_t print);
void set_node(const Reading *reading, Bound *out, int place);
uint64_t print_of(const Node *node, const uint64_t *weights);
// Parse a side without blanks, which is altered; 0 where it is no expression.
int parse_side(Reading *reading, char *text, long size);
// The text up to the next `=` or the end, without blanks, in `out` of SIDE + 1 characters; the size, above SIDE where it is longer.
long next_side(Text *rest, char *out);
int parse_clause(Reading *reading, Text text);
// The form and the fingerprint of an expression; 0 where it has no form.
int form_of(const Reading *reading, const Term *terms, long count, Form *out, uint64_t *print);
// What a clause states under the bindings.
void state_clause(const Reading *reading, const Clause *clause, Statement *out);
