import { ActionIcon, Checkbox, Tooltip } from '@mantine/core'
import { IconAlertOctagon, IconAlertTriangle, IconPencil, IconTrash } from '~/parts/icons'
import { useEffect, useRef, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import type { Watchpoint } from '~/api/types'
import { conditionTexts } from '~/parts/conditionTexts'
import { useConditionWords } from '~/parts/conditionWords'
import { count } from '~/parts/numbers'
import { useView } from '~/state/store'
import { useWatchpointEdits } from './edits'
import { watchpointsTexts } from './texts'
import { useDelete, useRefusal } from './useWatchpointActions'
import classes from './watchpoints.module.css'

/** A watchpoint in the list: state, condition, number of nodes, and hits. */
export function WatchpointRow({ watchpoint, isChosen }: { watchpoint: Watchpoint; isChosen: boolean }) {
  const { t } = useTranslation(watchpointsTexts)
  const { t: tc } = useTranslation(conditionTexts)
  const words = useConditionWords()
  const set = useView((view) => view.set)
  const refusal = useRefusal()
  const askDelete = useDelete()
  const { enable } = useWatchpointEdits()
  const { id, condition, enabled, hits, nodes, persistence, severity } = watchpoint
  const hasOwnName = watchpoint.name !== '' && !watchpoint.name.startsWith('recommend_')
  const label = hasOwnName ? watchpoint.name : words.label(condition)
  const Severity = severity === 'error' ? IconAlertOctagon : IconAlertTriangle
  const details = [
    hasOwnName && words.label(condition),
    words.limits(watchpoint),
    nodes === 0 ? t('noNodes') : t('nodes', { count: nodes }),
    persistence > 1 && t('inARow', { steps: count(persistence) }),
    words.selection(watchpoint.selection, watchpoint.edits),
    !enabled && t('off'),
  ].filter(Boolean)
  const row = useRef<HTMLLIElement>(null)
  useEffect(() => {
    if (isChosen) row.current?.scrollIntoView({ block: 'nearest' })
  }, [isChosen])
  return (
    <li
      ref={row}
      className={classes['row']}
      data-testid="watchpoint-row"
      data-id={id}
      data-condition={condition}
      data-enabled={enabled}
      data-chosen={isChosen}
    >
      <Tooltip label={refusal ?? t('enable', { id })}>
        <Checkbox
          size="xs"
          checked={enabled}
          disabled={refusal !== undefined}
          aria-label={t('enable', { id })}
          onChange={(event) => enable.mutate({ id, enabled: event.currentTarget.checked })}
        />
      </Tooltip>
      <Tooltip label={words.sentence(watchpoint)} multiline maw={360} position="top-start" openDelay={600}>
        <button
          type="button"
          className={classes['choose']}
          aria-pressed={isChosen}
          onClick={() => set({ watchpoint: isChosen ? null : id })}
        >
          <span className={classes['name']}>
            <abbr>{watchpoint.abbreviation || `#${id}`}</abbr> <b>{label}</b>
          </span>
          <span className={classes['details']}>{details.join(' · ')}</span>
        </button>
      </Tooltip>
      <span className={classes['end']}>
        {hits > 0 && (
          <span
            className={classes['hits']}
            data-severity={severity}
            title={`${tc(`severities.${severity}`)}: ${t('hits', { count: hits })}`}
          >
            <Severity size={14} aria-hidden />
            <span>{count(hits)}</span>
          </span>
        )}
        <span className={classes['buttons']}>
          <RowButton
            label={t('editOne', { id })}
            refusal={refusal}
            icon={<IconPencil size={14} />}
            run={() => set({ dialog: 'watchpoint', edited: id })}
            testId="watchpoint-edit"
          />
          <RowButton
            label={t('deleteOne', { id })}
            refusal={refusal}
            icon={<IconTrash size={14} />}
            run={() => askDelete(watchpoint)}
            testId="watchpoint-delete"
          />
        </span>
      </span>
    </li>
  )
}

function RowButton(props: {
  label: string
  refusal: string | undefined
  icon: ReactNode
  run: () => void
  testId: string
}) {
  return (
    <Tooltip label={props.refusal ?? props.label}>
      <ActionIcon
        size="xs"
        aria-label={props.label}
        aria-disabled={props.refusal !== undefined}
        data-testid={props.testId}
        onClick={() => {
          if (props.refusal === undefined) props.run()
        }}
      >
        {props.icon}
      </ActionIcon>
    </Tooltip>
  )
}
