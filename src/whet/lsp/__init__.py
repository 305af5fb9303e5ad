"""Language servers: check edits with a project's own type checker, and find symbols."""
