import type { ComponentType, SVGProps } from 'react'

/** A drawing of 24 x 24 in the colour of the text; decoration for screen readers unless it has a label. */
export type Icon = ComponentType<
  Omit<SVGProps<SVGSVGElement>, 'stroke'> & {
    /** Width and height in pixels. */
    size?: number
    /** Width of its lines, for a drawing of 24 pixels. */
    stroke?: number
  }
>

/** Returns a component that draws the inside of an SVG, whose lines and areas are as the outermost element says. */
export function svgIcon(drawing: string): Icon {
  const html = { __html: drawing }
  return ({ size = 24, stroke = 2, ...others }) => (
    <svg
      xmlns="http://www.w3.org/2000/svg"
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      strokeWidth={stroke}
      {...others}
      dangerouslySetInnerHTML={html}
    />
  )
}
