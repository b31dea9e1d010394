include: "workflow/Snakefile"


# An included file cannot name the default target of the one that includes it.
workflow.default_target = "all"
