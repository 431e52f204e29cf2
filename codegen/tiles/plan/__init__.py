"""Plans that tile machines alone have, and the questions that layers ask there."""
