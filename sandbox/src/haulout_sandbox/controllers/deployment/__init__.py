"""The Deployment controller: replica sets, rollouts and progress."""
