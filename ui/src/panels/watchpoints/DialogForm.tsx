import { Button, NumberInput, SegmentedControl, TextInput } from '@mantine/core'
import { IconEye } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import type { Condition, Watchpoint } from '~/api/types'
import { adviceText } from '~/parts/adviceText'
import { conditionTexts } from '~/parts/conditionTexts'
import { useConditionWords } from '~/parts/conditionWords'
import { useView } from '~/state/store'
import { ConditionChoice } from './ConditionChoice'
import classes from './dialog.module.css'
import {
  changeOf,
  MOST_PERSISTENCE,
  parametersOf,
  problems,
  selectionOf,
  specOf,
  withCondition,
  type Draft,
} from './draft'
import { useWatchpointEdits } from './edits'
import { Limits } from './Limits'
import { NodeChoice } from './NodeChoice'
import { watchpointsTexts } from './texts'
import { useRefusal } from './useWatchpointActions'
import { tell } from '~/state/messages'

/** The form for condition, limits and nodes, with a summary in words. */
export function DialogForm(props: {
  conditions: Condition[]
  watchpoint: Watchpoint | null
  initial: Draft
  close: () => void
}) {
  const { conditions, watchpoint, initial, close } = props
  const { t } = useTranslation(watchpointsTexts)
  const { t: tc } = useTranslation(conditionTexts)
  const set = useView((view) => view.set)
  const refusal = useRefusal()
  const edits = useWatchpointEdits()
  const isRunning = useSession().data?.state === 'running'
  const [draft, setDraft] = useState(initial)
  const [wasTried, setTried] = useState(false)
  const condition = conditions.find(({ id }) => id === draft.condition)
  if (!condition) return null
  const allProblems = problems(draft, condition)
  const isBlank = ({ text }: { text: string }) =>
    text === 'noThreshold' || text === 'needs' || text === 'argument'
  // Missing input is not an error until the user submits the form.
  const shown = wasTried ? allProblems : allProblems.filter((problem) => !isBlank(problem))
  const messageOf = (field: string): string | undefined => {
    const problem = shown.find((candidate) => candidate.field === field)
    if (!problem) return undefined
    const range = problem.values?.['range']
    return t(`problems.${problem.text}`, range ? { range: t(`ranges.${range}`) } : {})
  }
  const change = (part: Partial<Draft>) => setDraft({ ...draft, ...part })
  const error = edits.create.error ?? edits.save.error
  const isSending = edits.create.isPending || edits.save.isPending

  const submit = () => {
    setTried(true)
    if (allProblems.length > 0 || refusal !== undefined) return
    const onSuccess = (made: Watchpoint) => {
      close()
      set({ watchpoint: made.id })
      const nodes = t('nodes', { count: made.nodes })
      tell(
        made.nodes > 0
          ? t(isRunning ? 'createdRunning' : 'created', { id: made.id, nodes })
          : t('createdNone', { id: made.id }),
        made.nodes > 0 ? 'info' : 'warning',
        'watchpoint',
      )
    }
    if (watchpoint) edits.save.mutate({ id: watchpoint.id, ...changeOf(draft, condition) }, { onSuccess })
    else edits.create.mutate(specOf(draft, condition), { onSuccess })
  }

  return (
    <form
      className={classes['form']}
      onSubmit={(event) => {
        event.preventDefault()
        submit()
      }}
      noValidate
    >
      {!watchpoint && <p className={classes['intro']}>{t('intro')}</p>}
      <div className={classes['columns']}>
        <ConditionChoice
          conditions={conditions}
          chosen={condition}
          isFixed={watchpoint !== null}
          choose={(next) => setDraft(withCondition(draft, condition, next))}
        />
        <div className={classes['settings']}>
          <p className={classes['meaning']}>{adviceText(condition.meaning)}</p>
          <Limits
            condition={condition}
            draft={draft}
            messageOf={messageOf}
            change={(values) => change({ values })}
          />
          <NodeChoice draft={draft} message={messageOf('argument')} change={change} />
          <div className={classes['row']}>
            <NumberInput
              label={t('persistence')}
              description={t('persistenceHint')}
              min={1}
              max={MOST_PERSISTENCE}
              allowDecimal={false}
              value={draft.persistence}
              onChange={(value) => change({ persistence: String(value) })}
              error={messageOf('persistence')}
            />
            <div>
              <div className={classes['label']} id="watchpoint-severity">
                {t('severity')}
              </div>
              <div className={classes['hint']}>{t('severityHint')}</div>
              <SegmentedControl
                aria-labelledby="watchpoint-severity"
                fullWidth
                data={(['warning', 'error'] as const).map((value) => ({
                  value,
                  label: tc(`severities.${value}`),
                }))}
                value={draft.severity}
                onChange={(severity) => change({ severity: severity })}
              />
            </div>
          </div>
          <TextInput
            label={t('name')}
            maxLength={200}
            value={draft.name}
            onChange={(event) => change({ name: event.currentTarget.value })}
          />
        </div>
      </div>
      <Outcome draft={draft} condition={condition} isUnfinished={allProblems.length > 0} />
      {(error ?? refusal) && (
        <p className={classes['error']} role="alert" data-testid="watchpoint-error">
          {error?.message ?? refusal}
        </p>
      )}
      <div className={classes['end']}>
        <Button variant="default" onClick={close}>
          {t('cancel')}
        </Button>
        <Button
          type="submit"
          loading={isSending}
          disabled={refusal !== undefined}
          data-testid="watchpoint-submit"
        >
          {watchpoint ? t('save') : t('create')}
        </Button>
      </div>
    </form>
  )
}

/** Describes in words what the watchpoint does. */
function Outcome(props: { draft: Draft; condition: Condition; isUnfinished: boolean }) {
  const { draft, condition, isUnfinished } = props
  const { t } = useTranslation(watchpointsTexts)
  const words = useConditionWords()
  const sentence = words.sentence({
    condition: condition.id,
    parameters: parametersOf(draft, condition),
    selection: selectionOf(draft),
    edits: draft.edits,
    persistence: Number(draft.persistence) || 1,
  })
  return (
    <div className={classes['outcome']} aria-live="polite" data-testid="watchpoint-words">
      <IconEye size={16} role="img" aria-label={t('willDo')} />
      <span>{isUnfinished ? t('unfinished') : `${sentence} ${t('from')}`}</span>
    </div>
  )
}
