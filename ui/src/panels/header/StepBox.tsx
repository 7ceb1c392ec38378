import { Button, NumberInput, Popover, Tooltip } from '@mantine/core'
import { IconHistory } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useCommand } from '~/api/queries'
import type { Session } from '~/api/types'
import { useOffered } from '~/state/actions'
import classes from './header.module.css'
import { lastStep } from './reasons'
import { headerTexts } from './texts'

/** The step shown; if the run can go to other steps, a click opens a field for the step. */
export function StepBox(props: { session: Session; isAsking: boolean; ask: (isAsking: boolean) => void }) {
  const { session, isAsking, ask } = props
  const { t } = useTranslation(headerTexts)
  const why = useOffered((offered) => offered.actions['run.goToStep']?.disabled)
  const isPast = typeof session.present_step === 'number'
  const text =
    typeof session.total_steps === 'number'
      ? t('stepOf', { step: session.step, last: session.total_steps })
      : t('step', { step: session.step })
  const about = isPast ? t('pastStep', { present: session.present_step }) : t('aboutStep')
  return (
    <Popover opened={isAsking} onChange={ask} trapFocus returnFocus shadow="md" position="bottom-start">
      <Popover.Target>
        <Tooltip
          disabled={isAsking}
          label={`${about}${why === undefined ? '' : ` ${why}`}`}
          multiline
          maw={340}
        >
          <Button
            variant={isPast ? 'light' : 'default'}
            {...(isPast ? { color: 'yellow', c: 'var(--past)' } : {})}
            className={classes['step'] ?? ''}
            leftSection={isPast ? <IconHistory size={13} /> : null}
            data-testid="step"
            aria-label={`${text}. ${t('goTo')}`}
            aria-disabled={why !== undefined}
            onClick={() => {
              if (why === undefined) ask(!isAsking)
            }}
          >
            {text}
          </Button>
        </Tooltip>
      </Popover.Target>
      <Popover.Dropdown>
        <GoToStep session={session} close={() => ask(false)} />
      </Popover.Dropdown>
    </Popover>
  )
}

function GoToStep({ session, close }: { session: Session; close: () => void }) {
  const { t } = useTranslation(headerTexts)
  const [requested, setRequested] = useState<number | string>(session.step)
  const { mutate: command } = useCommand()
  const last = lastStep(session)
  const isThere =
    typeof requested === 'number' &&
    Number.isInteger(requested) &&
    requested >= 0 &&
    (last === null || requested <= last)
  return (
    <form
      className={classes['goTo']}
      onSubmit={(event) => {
        event.preventDefault()
        if (!isThere) return
        command({ action: 'go_to_step', steps: requested })
        close()
      }}
    >
      <NumberInput
        label={t('goTo')}
        description={last === null ? undefined : t('goToRange', { last })}
        error={isThere ? undefined : t('noSuchStep', { last: last ?? '…' })}
        value={requested}
        onChange={setRequested}
        allowDecimal={false}
        allowNegative={false}
        data-autofocus
        onFocus={(event) => event.currentTarget.select()}
        w={170}
      />
      <Button type="submit" disabled={!isThere}>
        {t('go')}
      </Button>
    </form>
  )
}
