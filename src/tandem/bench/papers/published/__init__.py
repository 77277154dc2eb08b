"""The papers' schedulers as their authors published them, in virtual time by this cost model."""
