"""The actions of a scenario's timeline, by the objects that they change."""
