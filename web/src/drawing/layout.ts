/** Sizes of a lane in pixels. */
export const LANE = {
  /** Height of a whole lane. */
  height: 64,
  /** From the lane's top to the log strip; the crown and flags are above it. */
  top: 20,
  /** Height of the log strip. */
  strip: 30,
  /** Width of sign and name at the left. */
  label: 132,
} as const;
