"""Statistics of a report: estimates with intervals, claims, contrasts, budgets, notes on idle arms."""
