include: "workflow/Snakefile"


# an included default target is not taken over by itself
workflow.default_target = "all"
