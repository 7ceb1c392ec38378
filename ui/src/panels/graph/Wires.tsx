import { memo, useMemo } from 'react'
import { labelPositions, smooth, wireText } from './curves'
import css from './graph.module.css'
import type { Layout } from './layout'
import { useMarks } from './marks'
import type { Picture, Wire } from './picture'

/** The wires of a picture, drawn above the frames of open boxes and below closed boxes. */
export const Wires = memo(function Wires({ picture, layout }: { picture: Picture; layout: Layout }) {
  const drawn = useMemo(() => {
    const closed = picture.boxes.filter((box) => !box.isOpen)
    const obstacles = closed.flatMap((box) => layout.positions.get(box.id) ?? [])
    const labels = labelPositions(picture.wires, layout, obstacles)
    return picture.wires.flatMap((wire) => {
      const route = layout.routes.get(wire.id)
      return route ? [{ wire, path: smooth(route), label: labels.get(wire.id) }] : []
    })
  }, [picture, layout])
  const chosen = useMarks((marks) => marks.chosen)
  const reach = useMarks((marks) => marks.reach)
  return (
    <svg className={css['wires']} width={layout.width} height={layout.height} aria-hidden>
      <defs>
        {['data', 'control', 'near'].map((kind) => (
          <marker
            key={kind}
            id={`arrow-${kind}`}
            className={css[`arrow-${kind}`]}
            viewBox="0 0 8 8"
            refX="7"
            refY="4"
            markerWidth="8"
            markerHeight="8"
            markerUnits="userSpaceOnUse"
            orient="auto-start-reverse"
          >
            <path d="M0.5 1 7.5 4 0.5 7z" />
          </marker>
        ))}
      </defs>
      {drawn.map(({ wire, path }) => (
        <Line key={wire.id} wire={wire} path={path} state={stateOf(wire, chosen, reach)} />
      ))}
      <g className={css['labels']}>
        {drawn.map(({ wire, label }) =>
          label && stateOf(wire, chosen, reach) !== 'dim' ? (
            <text key={wire.id} x={label.x} y={label.y} data-state={stateOf(wire, chosen, reach)}>
              {wireText(wire)}
            </text>
          ) : null,
        )}
      </g>
    </svg>
  )
})

type State = 'near' | 'dim' | undefined

const Line = memo(function Line({ wire, path, state }: { wire: Wire; path: string; state: State }) {
  const kind = wire.control ? 'control' : 'data'
  return (
    <path
      className={css['wire']}
      d={path}
      data-kind={kind}
      data-state={state}
      strokeWidth={wire.control ? 1 : Math.min(3.5, 1 + Math.log2(wire.count) / 2.5)}
      markerStart={wire.back > 0 ? `url(#arrow-${state === 'near' ? 'near' : kind})` : undefined}
      markerEnd={`url(#arrow-${state === 'near' ? 'near' : kind})`}
    >
      <title>{wire.label || wireText(wire)}</title>
    </path>
  )
})

function stateOf(wire: Wire, chosen: string, reach: { boxes: ReadonlySet<string> } | null): State {
  if (reach) return reach.boxes.has(wire.source) && reach.boxes.has(wire.target) ? 'near' : 'dim'
  return chosen && (wire.source === chosen || wire.target === chosen) ? 'near' : undefined
}
