import type { Box } from './picture'

export interface Size {
  width: number
  height: number
}

/** Height of an open box's header, which contains its name. */
export const HEADER = 30
const FONT = '"Segoe UI", system-ui, Roboto, "Noto Sans CJK SC", sans-serif'

let context: CanvasRenderingContext2D | null | undefined
const widths = new Map<string, number>()

/** Return the size of a closed box, or the minimum size of an open box. */
export function sizeOf(box: Box): Size {
  if (box.isOpen) return { width: Math.min(320, textWidth(box.label, 600) + 76), height: 60 }
  if (box.kind === 'scope' || box.kind === 'cluster') {
    return { width: within(textWidth(box.label, 600) + 48, 104, 260), height: 44 }
  }
  if (box.kind === 'operator') return { width: within(textWidth(box.label, 500) + 30, 72, 240), height: 30 }
  return { width: within(textWidth(box.label, 400, 11) + 22, 44, 190), height: 22 }
}

/** Return the width of a text in CSS pixels. */
export function textWidth(text: string, weight: number, pixels = 12): number {
  const key = `${weight} ${pixels} ${text}`
  let width = widths.get(key)
  if (width === undefined) {
    context ??= document.createElement('canvas').getContext('2d')
    if (context) {
      context.font = `${weight} ${pixels}px ${FONT}`
      width = context.measureText(text).width
    } else width = text.length * pixels * 0.58
    if (widths.size > 20_000) widths.clear()
    widths.set(key, width)
  }
  return Math.ceil(width)
}

function within(value: number, least: number, most: number): number {
  return Math.max(least, Math.min(most, value))
}
