"""The `teach` stage: proposals of a teacher, students that train on them, and what the teacher is paid for them."""
