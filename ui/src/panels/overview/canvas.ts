/** Resize a canvas, given in CSS pixels, to the pixels of the screen, and return its context. */
export function sized(canvas: HTMLCanvasElement | null, width: number, height: number) {
  const context = canvas?.getContext('2d') ?? null
  if (!canvas || !context) return null
  const ratio = window.devicePixelRatio || 1
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)]
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide
    canvas.height = high
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  return context
}
