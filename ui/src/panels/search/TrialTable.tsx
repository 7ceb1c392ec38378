import { ActionIcon, Tooltip, UnstyledButton } from '@mantine/core'
import { useElementSize, useMergedRef } from '@mantine/hooks'
import { IconArrowDown, IconArrowUp, IconExternalLink } from '~/parts/icons'
import { useRef, useState } from 'react'
import { useTranslation } from 'react-i18next'
import type { SearchResult, Trial } from '~/api/types'
import { useOpenDump } from '~/panels/runs/queries'
import { rowsInSight } from '~/panels/tensors/virtualRows'
import { short } from '~/parts/numbers'
import classes from './search.module.css'
import { searchTexts } from './texts'
import { remark, sorted, valueText, type Order } from './trials'

const ROW = 29

/** A virtualised table of the trials; a click opens the recorded run of a trial. */
export function TrialTable({ result, trials }: { result: SearchResult; trials: readonly Trial[] }) {
  const { t } = useTranslation(searchTexts)
  const targets = result.targets.map(({ name }) => name)
  const [order, setOrder] = useState<Order>(() => ({
    column: `target:${targets[0] ?? ''}`,
    descending: result.targets[0]?.goal === 'maximize',
  }))
  const { mutate: open } = useOpenDump()
  const [top, setTop] = useState(0)
  const scroller = useRef<HTMLDivElement>(null)
  const { ref, height } = useElementSize()
  const merged = useMergedRef(ref, scroller)
  const rows = sorted(trials, order, targets)
  const sight = rowsInSight(rows.length, ROW, top, height)
  const columns = [
    { id: 'number', name: t('number') },
    { id: 'state', name: t('state') },
    ...targets.map((name) => ({ id: `target:${name}`, name })),
    ...result.parameters.map(({ name }) => ({ id: `param:${name}`, name })),
    { id: 'duration', name: t('duration') },
    { id: 'remark', name: t('remark') },
  ]
  const below = Math.max(0, rows.length - 1 - sight.last) * ROW
  return (
    <div
      ref={merged}
      className={classes['scroller']}
      tabIndex={0}
      role="region"
      aria-label={t('table')}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <table className={classes['trials']} data-testid="trials" aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            <th aria-label={t('open')} />
            {columns.map(({ id, name }) => (
              <th
                key={id}
                scope="col"
                aria-sort={order.column === id ? (order.descending ? 'descending' : 'ascending') : undefined}
              >
                <UnstyledButton
                  aria-label={t('sortBy', { name })}
                  onClick={() =>
                    setOrder({ column: id, descending: order.column === id && !order.descending })
                  }
                >
                  {name}
                  {order.column === id &&
                    (order.descending ? <IconArrowDown size={11} /> : <IconArrowUp size={11} />)}
                </UnstyledButton>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {sight.first > 0 && (
            <tr aria-hidden>
              <td style={{ height: sight.first * ROW, padding: 0 }} />
            </tr>
          )}
          {rows.slice(sight.first, sight.last + 1).map((trial) => (
            <Row
              key={trial.number}
              trial={trial}
              result={result}
              isBest={result.best.includes(trial.number)}
              open={() => trial.recording && open(trial.recording)}
            />
          ))}
          {below > 0 && (
            <tr aria-hidden>
              <td style={{ height: below, padding: 0 }} />
            </tr>
          )}
        </tbody>
      </table>
    </div>
  )
}

function Row(props: { trial: Trial; result: SearchResult; isBest: boolean; open: () => void }) {
  const { t } = useTranslation(searchTexts)
  const { trial, result, isBest, open } = props
  const isRecorded = Boolean(trial.recording)
  const label = t('openTrial', { number: trial.number })
  return (
    <tr
      data-testid="trial"
      data-number={trial.number}
      data-state={trial.state}
      data-best={isBest}
      data-recorded={isRecorded}
      onClick={open}
    >
      <td>
        <Tooltip label={isRecorded ? label : t('noRecording')} multiline maw={320}>
          <ActionIcon
            size="sm"
            aria-label={label}
            aria-disabled={!isRecorded}
            style={isRecorded ? {} : { opacity: 0.35, cursor: 'not-allowed' }}
            onClick={(event) => {
              event.stopPropagation()
              open()
            }}
          >
            <IconExternalLink size={14} />
          </ActionIcon>
        </Tooltip>
      </td>
      <td>{trial.number}</td>
      <td className={classes[trial.state]}>{t(`states.${trial.state}`)}</td>
      {result.targets.map(({ name }, index) => (
        <td key={name}>{valueText(trial.values[index])}</td>
      ))}
      {result.parameters.map(({ name }) => (
        <td key={name}>{valueText(trial.params[name])}</td>
      ))}
      <td>{typeof trial.duration_s === 'number' ? t('seconds', { time: short(trial.duration_s) }) : ''}</td>
      <td className={classes['remark']} title={remark(trial)}>
        {remark(trial)}
      </td>
    </tr>
  )
}
