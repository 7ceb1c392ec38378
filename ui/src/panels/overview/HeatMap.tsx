import { useComputedColorScheme } from '@mantine/core'
import { IconFlag3 } from '~/parts/icons'
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { useIsSelected, useSession } from '~/api/queries'
import type { Overview } from '~/api/types'
import { moved, type Cell } from '~/parts/gridKeys'
import { useView } from '~/state/store'
import { sized } from './canvas'
import { drawOver, drawPicture } from './drawing'
import type { Beginning } from './beginning'
import {
  cellAt,
  columnOf,
  geometryOf,
  middleOf,
  nearestCell,
  partAround,
  partBetween,
  type Part,
} from './geometry'
import classes from './overview.module.css'
import type { Scale } from './scale'
import { overviewTexts } from './texts'
import { Tip, useCellWords } from './Tip'

interface Props {
  data: Overview
  scale: Scale
  width: number
  height: number
  beginning: Beginning | null
  /** The cell moved with the keyboard; kept by the parent, so that other controls can move it. */
  cursor: Cell | null
  onCursor: (cell: Cell | null) => void
  onGo: (cell: Cell, isOpened: boolean) => void
  onPart: (part: Part | null) => void
  onBack: () => void
  onBeginning: () => void
}

/** Distance in pixels from which a pointer movement is a drag. */
const DRAG_FROM = 5

/** The heat map with its pointer and keyboard control. */
export function HeatMap(props: Props) {
  const { data, scale, width, height, beginning, cursor, onCursor } = props
  const { t } = useTranslation(overviewTexts)
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const rank = useView((view) => view.rank)
  const isSelected = useIsSelected()
  const { data: session } = useSession()
  const below = useRef<HTMLCanvasElement>(null)
  const above = useRef<HTMLCanvasElement>(null)
  const [hover, setHover] = useState<Cell | null>(null)
  const [drag, setDrag] = useState<[Cell, Cell] | null>(null)
  const pressed = useRef<{ x: number; y: number; cell: Cell } | null>(null)
  const geometry = useMemo(
    () => geometryOf(width, height, data.rows.length, data.steps.length),
    [width, height, data.rows.length, data.steps.length],
  )
  const shown = columnOf(data.steps, session?.step ?? -1)
  const chosen = useMemo(
    () =>
      data.rows.flatMap((row, number) =>
        row.tensors === 1 && isSelected({ rank, graph: row.graph, node: row.node }) ? [number] : [],
      ),
    [data.rows, rank, isSelected],
  )

  useEffect(() => {
    const canvas = sized(below.current, width, height)
    const phases = {
      forward: t('phases.forward'),
      gradients: t('phases.gradients'),
      optimizer: t('phases.optimizer'),
      parameters: t('phases.parameters'),
    }
    if (canvas) drawPicture(canvas, data, scale, geometry, theme, { steps: t('steps'), phases })
  }, [data, scale, geometry, theme, t, width, height])
  useEffect(() => {
    const canvas = sized(above.current, width, height)
    if (canvas)
      drawOver(
        canvas,
        geometry,
        { shown, chosen, cursor: hover ?? cursor, beginning: beginning?.cell ?? null, drag },
        theme,
      )
  }, [geometry, shown, chosen, hover, cursor, beginning, drag, theme, width, height])

  const at = (event: { clientX: number; clientY: number; currentTarget: Element }) => {
    const box = event.currentTarget.getBoundingClientRect()
    return { x: event.clientX - box.left, y: event.clientY - box.top }
  }
  const onDown = (event: PointerEvent) => {
    const point = at(event)
    const cell = cellAt(geometry, point.x, point.y)
    if (event.button !== 0 || !cell) return
    pressed.current = { ...point, cell }
    event.currentTarget.setPointerCapture(event.pointerId)
  }
  const onMove = (event: PointerEvent) => {
    const { x, y } = at(event)
    const from = pressed.current
    if (from && Math.hypot(x - from.x, y - from.y) >= DRAG_FROM) {
      setHover(null)
      setDrag([from.cell, nearestCell(geometry, x, y)])
    } else if (!drag) setHover(cellAt(geometry, x, y))
  }
  const onUp = () => {
    const from = pressed.current
    pressed.current = null
    if (drag) {
      props.onPart(partBetween(data, ...drag))
      setDrag(null)
    } else if (from) {
      onCursor(from.cell)
      props.onGo(from.cell, false)
    }
  }
  const onKey = (event: KeyboardEvent) => {
    const cell = cursor ?? beginning?.cell ?? { row: 0, column: Math.max(0, shown) }
    const next = moved(event, cell, data.rows.length, data.steps.length)
    if (next && !event.ctrlKey && !event.altKey && !event.metaKey) onCursor(cursor ? next : cell)
    else if (event.key === 'Enter') props.onGo(cell, event.shiftKey)
    else if (event.key === 'o') props.onGo(cell, true)
    else if (event.key === '+' || event.key === '=') props.onPart(partAround(data, cell))
    else if (event.key === '-' || event.key === 'Escape') props.onBack()
    else if (event.key === 'b') props.onBeginning()
    else return
    event.preventDefault()
  }
  const words = useCellWords(data)(cursor ?? { row: -1, column: -1 })
  const pointed = hover ?? cursor
  return (
    <>
      <canvas ref={below} aria-hidden />
      <canvas ref={above} aria-hidden />
      <div
        className={classes['pointer']}
        role="application"
        aria-label={t('map', { statistic: t(`statistics.${data.statistic}`) })}
        aria-describedby="overview-help"
        tabIndex={0}
        data-testid="overview-map"
        onPointerDown={onDown}
        onPointerMove={onMove}
        onPointerUp={onUp}
        onPointerCancel={() => {
          pressed.current = null
          setDrag(null)
        }}
        onPointerLeave={() => setHover(null)}
        onDoubleClick={(event) => {
          const { x, y } = at(event)
          const cell = cellAt(geometry, x, y)
          // If the first click zoomed in, another cell is under the pointer.
          if (cell && cursor?.row === cell.row && cursor.column === cell.column) props.onGo(cell, true)
        }}
        onKeyDown={onKey}
        onBlur={() => onCursor(null)}
      />
      <div id="overview-help" hidden>
        {t('help')}
      </div>
      <div aria-live="polite" className="mantine-visually-hidden" style={hidden}>
        {words ? [words.many, words.node, words.about, words.step, words.value, words.marks].join(' ') : ''}
      </div>
      {beginning?.cell && (
        <Callout {...props} beginning={beginning} cell={beginning.cell} geometry={geometry} />
      )}
      {pointed && !drag && <Tip data={data} cell={pointed} geometry={geometry} />}
    </>
  )
}

const hidden = {
  position: 'absolute',
  width: 1,
  height: 1,
  overflow: 'hidden',
  clipPath: 'inset(50%)',
} as const

/** The label of the beginning, beside its cell. */
function Callout({
  beginning,
  cell,
  geometry,
  onBeginning,
}: Props & { beginning: Beginning; cell: Cell; geometry: ReturnType<typeof geometryOf> }) {
  const { t } = useTranslation(overviewTexts)
  const { x, y } = middleOf(geometry, cell)
  const { step } = beginning
  const name = beginning.name.split('/').slice(-3).join('/')
  const isRight = x > geometry.width * 0.55
  const style = {
    top: Math.min(Math.max(2, y - 34), geometry.height - 30),
    // Do not cover the names on the left.
    maxWidth: Math.max(200, isRight ? x - geometry.left - 16 : geometry.width - x - 20),
    ...(isRight ? { right: geometry.width - x + 12 } : { left: x + 12 }),
  }
  return (
    <button
      type="button"
      className={classes['callout']}
      style={style}
      onClick={onBeginning}
      data-testid="overview-beginning"
    >
      <IconFlag3 size={13} style={{ flex: 'none' }} />
      {beginning.isCertain ? t('beganAt', { step }) : t('firstAt', { step })}
      <span className={classes['end']}>
        <bdi>{name}</bdi>
      </span>
    </button>
  )
}
